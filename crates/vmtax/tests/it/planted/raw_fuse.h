/* FUSE by hand, to virtiofsd. */
enum { LOOKUP = 1, SETATTR = 4, SYMLINK = 6, MKNOD = 8, MKDIR = 9, UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13,
       OPEN = 14, READ = 15, WRITE = 16, INIT = 26, CREATE = 35, RENAME2 = 45 };

static struct device fuse;

/* A request on a node: first `length` bytes, then up to two names. 0, or the error's number. */
static int ask(uint32_t code, uint64_t node, const void *first, uint32_t length, const char *one, const char *two) {
    uint8_t *start = fuse.memory + REQUEST;
    memset(start, 0, 40);
    memcpy(start + 40, first, length);
    uint32_t total = 40 + length;
    const char *words[] = {one, two};
    for (int i = 0; i < 2; i++)
        if (words[i]) {
            strcpy((char *)start + total, words[i]);
            total += strlen(words[i]) + 1;
        }
    static uint64_t unique;
    unique += 2;
    memcpy(start, &total, 4), memcpy(start + 4, &code, 4);
    memcpy(start + 8, &unique, 8), memcpy(start + 16, &node, 8);
    if (exchange(&fuse, total) < 0)
        return EIO;
    return -(int)U32(fuse.memory + ANSWER + 4);
}

#define REPLY (fuse.memory + ANSWER + 16)
#define INO U64(REPLY + 40)

static uint64_t look(uint64_t parent, const char *name) { return ask(LOOKUP, parent, NULL, 0, name, NULL) ? 0 : U64(REPLY); }

static int make(int code, uint64_t parent, const char *name) {
    uint32_t folder[2] = {0777, 0}, node[4] = {S_IFIFO | 0666, 0, 0, 0}, file[4] = {O_RDWR, S_IFREG | 0666, 0, 0};
    switch (code) {
    case MKDIR: return ask(code, parent, folder, sizeof folder, name, NULL);
    case MKNOD: return ask(code, parent, node, sizeof node, name, NULL);
    case CREATE: return ask(code, parent, file, sizeof file, name, NULL);
    case SYMLINK: return ask(code, parent, NULL, 0, name, "x");
    default: return ask(code, parent, NULL, 0, name, NULL);
    }
}

static void wrong_name(const char *name, uint64_t scratch, uint64_t inside, uint64_t root) {
    uint64_t parents[] = {1, scratch};
    for (int i = 0; i < 2; i++) {
        int error = ask(LOOKUP, parents[i], NULL, 0, name, NULL);
        /* "." and ".." are folders of the tree, seen from these. */
        if (error || !(INO == root || !strcmp(name, ".")))
            say("TRY", "lookup", name, error);
    }
    say("TRY", "create", name, make(CREATE, scratch, name));
    say("TRY", "mkdir", name, make(MKDIR, scratch, name));
    say("TRY", "symlink", name, make(SYMLINK, scratch, name));
    say("TRY", "mknod", name, make(MKNOD, scratch, name));
    say("TRY", "unlink", name, make(UNLINK, scratch, name));
    say("TRY", "rmdir", name, make(RMDIR, scratch, name));
    say("TRY", "link", name, ask(LINK, scratch, &inside, 8, name, NULL));
    uint64_t to[2] = {scratch, 0};
    say("TRY", "rename-to", name, ask(RENAME, scratch, to, 8, "inside", name));
    say("TRY", "rename-from", name, ask(RENAME, scratch, to, 8, name, "stolen"));
    say("TRY", "rename2", name, ask(RENAME2, scratch, to, 16, "inside", name));
}

/* Reads and writes at a node, if it opens. */
static void opened(const char *what, uint64_t node) {
    uint32_t how[2] = {O_RDWR, 0};
    int error = node ? ask(OPEN, node, how, sizeof how, NULL, NULL) : ENOENT;
    say("TRY", "open", what, error);
    if (error)
        return;
    struct { uint64_t handle, offset; uint32_t size, flags; uint64_t owner; uint32_t more[2]; } some = {U64(REPLY), 0, 60, 0, 0, {0}};
    if (!ask(READ, node, &some, sizeof some, NULL, NULL))
        printf("GOT %.60s\n", REPLY);
    some.size = 8;
    say("TRY", "write", what, ask(WRITE, node, &some, sizeof some, "planted", NULL));
}

/* A node stays, and what its name is changes into a link that leads out. */
static void replaced(uint64_t scratch) {
    char secret[300];
    snprintf(secret, sizeof secret, "%s/secret", outside);
    say("OWN", "mkdir", "d", make(MKDIR, scratch, "d"));
    uint64_t was = look(scratch, "d");
    say("OWN", "rmdir", "d", make(RMDIR, scratch, "d"));
    say("OWN", "symlink", "d", ask(SYMLINK, scratch, NULL, 0, "d", outside));
    say("OWN", "symlink", "f", ask(SYMLINK, scratch, NULL, 0, "f", secret));
    uint64_t nodes[] = {was, look(scratch, "d"), look(1, "out"), look(1, "up")};
    for (int i = 0; i < 4; i++) {
        say("TRY", "lookup", "link/secret", ask(LOOKUP, nodes[i], NULL, 0, "secret", NULL));
        say("TRY", "lookup", "link/..", i ? ask(LOOKUP, nodes[i], NULL, 0, "..", NULL) : EPERM);
        say("TRY", "create", "link/planted", make(CREATE, nodes[i], "planted"));
        say("TRY", "mkdir", "link/planted", make(MKDIR, nodes[i], "planted"));
    }
    opened("link to a file", look(scratch, "f"));
    opened("link to a folder", look(1, "out"));
}

static void raw_fuse(void) {
    if (bring_up(&fuse, 26, 1))
        return;
    uint32_t hello[16] = {7, 31, 1 << 20, 0};
    say("OWN", "init", "", ask(INIT, 0, hello, 16, NULL, NULL));
    ask(LOOKUP, 1, NULL, 0, ".", NULL);
    uint64_t root = INO, scratch = look(1, "scratch");
    say("SEE", "unlink", "inside", make(UNLINK, scratch, "inside"));
    say("OWN", "create", "inside", make(CREATE, scratch, "inside"));
    uint64_t inside = look(scratch, "inside");
    for (int i = 0; i < NAMES; i++)
        wrong_name(names[i], scratch, inside, root);
    replaced(scratch);
    /* The host's /dev/kmsg. */
    uint32_t device[4] = {S_IFCHR | 0666, 1 << 8 | 11, 0, 0};
    say("SEE", "mknod", "device", ask(MKNOD, scratch, device, sizeof device, "device", NULL));
    opened("device", look(scratch, "device"));
}
