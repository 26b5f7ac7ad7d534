/* 9P2000.L by hand, to QEMU's own server. */
#include <stdarg.h>

enum { TLOPEN = 12, TLCREATE = 14, TSYMLINK = 16, TMKNOD = 18, TRENAME = 20, TSETATTR = 26, TLINK = 70, TMKDIR = 72,
       TRENAMEAT = 74, TUNLINKAT = 76, TVERSION = 100, TATTACH = 104, TWALK = 110, TREAD = 116, TWRITE = 118, TCLUNK = 120 };
enum { ROOT, SCRATCH, INSIDE, FOLDER, FILED, AIM };

static struct device nine_p;

/* A message of numbers (1, 2, 4, 8 bytes) and strings (s) as `form` says. 0, or the error's number. */
static int send_9p(int type, const char *form, ...) {
    uint8_t *start = nine_p.memory + REQUEST, *at = start + 7;
    va_list more;
    va_start(more, form);
    for (; *form; form++) {
        if (*form == 's') {
            const char *word = va_arg(more, const char *);
            uint16_t length = strlen(word);
            memcpy(at, &length, 2);
            memcpy(at + 2, word, length);
            at += 2 + length;
        } else {
            uint64_t number = va_arg(more, uint64_t);
            memcpy(at, &number, *form - '0');
            at += *form - '0';
        }
    }
    va_end(more);
    uint32_t length = at - start;
    uint16_t tag = type == TVERSION ? 0xffff : 1;
    memcpy(start, &length, 4), start[4] = type, memcpy(start + 5, &tag, 2);
    if (exchange(&nine_p, length) < 0)
        return EIO;
    uint8_t *answer = nine_p.memory + ANSWER;
    return answer[4] == 7 ? (int)U32(answer + 7) : answer[4] == type + 1 ? 0 : EPROTO;
}

#define N(number) ((uint64_t)(number))

/* A fid for what is at `first` of `from`, and `second` of that, unless they are NULL. */
static int walk(int from, int to, const char *first, const char *second) {
    send_9p(TCLUNK, "4", N(to));
    int names = !!first + !!second, error = names == 2   ? send_9p(TWALK, "442ss", N(from), N(to), N(2), first, second)
                                            : names == 1 ? send_9p(TWALK, "442s", N(from), N(to), N(1), first)
                                                         : send_9p(TWALK, "442", N(from), N(to), N(0));
    /* Fewer steps than names: the fid was not made. */
    return error ? error : U16(nine_p.memory + ANSWER + 7) == names ? 0 : ENOENT;
}

/* Whether the last walk's end is this one. */
static int at_qid(uint64_t path) {
    uint16_t steps = U16(nine_p.memory + ANSWER + 7);
    return steps && U64(nine_p.memory + ANSWER + 9 + (steps - 1) * 13 + 5) == path;
}

static void bad_name(const char *name, uint64_t root) {
    const char *ways[][2] = {{name, NULL}, {"..", name}, {"scratch", name}};
    for (int i = 0; i < 3; i++) {
        int error = walk(ROOT, AIM, ways[i][0], ways[i][1]);
        /* The root is its own parent, and "." is where one is. */
        if (error || !(at_qid(root) || (i == 2 && !strcmp(name, "."))))
            say("TRY", "walk", name, error);
    }
    walk(SCRATCH, AIM, NULL, NULL);
    say("TRY", "create", name, send_9p(TLCREATE, "4s444", N(AIM), name, N(O_RDWR), N(0666), N(0)));
    say("TRY", "mkdir", name, send_9p(TMKDIR, "4s44", N(SCRATCH), name, N(0777), N(0)));
    say("TRY", "symlink", name, send_9p(TSYMLINK, "4ss4", N(SCRATCH), name, "x", N(0)));
    say("TRY", "mknod", name, send_9p(TMKNOD, "4s4444", N(SCRATCH), name, N(S_IFIFO | 0666), N(0), N(0), N(0)));
    say("TRY", "link", name, send_9p(TLINK, "44s", N(SCRATCH), N(INSIDE), name));
    say("TRY", "rename", name, send_9p(TRENAME, "44s", N(INSIDE), N(SCRATCH), name));
    say("TRY", "renameat-to", name, send_9p(TRENAMEAT, "4s4s", N(SCRATCH), "inside", N(SCRATCH), name));
    say("TRY", "renameat-from", name, send_9p(TRENAMEAT, "4s4s", N(SCRATCH), name, N(SCRATCH), "stolen"));
    say("TRY", "unlink", name, send_9p(TUNLINKAT, "4s4", N(SCRATCH), name, N(0)));
    say("TRY", "rmdir", name, send_9p(TUNLINKAT, "4s4", N(SCRATCH), name, N(AT_REMOVEDIR)));
}

/* Reads and writes at a fid, if it opens. */
static void used(const char *what, int fid) {
    int error = send_9p(TLOPEN, "44", N(fid), N(O_RDWR));
    say("SEE", "open", what, error);
    if (!error && !send_9p(TREAD, "484", N(fid), N(0), N(60)) && U32(nine_p.memory + ANSWER + 7))
        printf("GOT %.60s\n", nine_p.memory + ANSWER + 11);
    if (!error)
        say("SEE", "write", what, send_9p(TWRITE, "484s", N(fid), N(0), N(9), "planted"));
    say("SEE", "truncate", what, send_9p(TSETATTR, "4444488888", N(fid), N(8), N(0), N(0), N(0), N(0), N(0), N(0), N(0), N(0)));
}

/* A fid stays, and what its name is changes into a link that leads out. */
static void swapped(void) {
    say("OWN", "mkdir", "d", send_9p(TMKDIR, "4s44", N(SCRATCH), "d", N(0777), N(0)));
    walk(SCRATCH, FOLDER, "d", NULL);
    walk(SCRATCH, FILED, "inside", NULL);
    send_9p(TUNLINKAT, "4s4", N(SCRATCH), "d", N(AT_REMOVEDIR));
    send_9p(TUNLINKAT, "4s4", N(SCRATCH), "inside", N(0));
    char secret[300];
    snprintf(secret, sizeof secret, "%s/secret", outside);
    say("OWN", "symlink", "d", send_9p(TSYMLINK, "4ss4", N(SCRATCH), "d", outside, N(0)));
    say("OWN", "symlink", "inside", send_9p(TSYMLINK, "4ss4", N(SCRATCH), "inside", secret, N(0)));
    say("TRY", "walk", "d/secret", walk(FOLDER, AIM, "secret", NULL));
    used("d/secret", AIM);
    say("TRY", "mkdir", "d/planted", send_9p(TMKDIR, "4s44", N(FOLDER), "planted", N(0777), N(0)));
    say("TRY", "create", "d/planted", send_9p(TLCREATE, "4s444", N(FOLDER), "planted", N(O_RDWR), N(0666), N(0)));
    used("inside", FILED);
}

static void raw_9p(void) {
    if (bring_up(&nine_p, 9, 0))
        return;
    say("OWN", "version", "", send_9p(TVERSION, "4s", N(8192), "9P2000.L"));
    say("OWN", "attach", "", send_9p(TATTACH, "44ss4", N(ROOT), N(~0u), "root", "/../..", N(0)));
    uint64_t root = U64(nine_p.memory + ANSWER + 7 + 5);
    say("OWN", "walk", "scratch", walk(ROOT, SCRATCH, "scratch", NULL));
    send_9p(TUNLINKAT, "4s4", N(SCRATCH), "inside", N(0));
    walk(SCRATCH, AIM, NULL, NULL);
    say("OWN", "create", "inside", send_9p(TLCREATE, "4s444", N(AIM), "inside", N(O_RDWR), N(0666), N(0)));
    walk(SCRATCH, INSIDE, "inside", NULL);
    for (int i = 0; i < NAMES; i++)
        bad_name(names[i], root);
    walk(ROOT, AIM, "out", NULL);
    used("out", AIM);
    say("TRY", "create", "out/planted", send_9p(TLCREATE, "4s444", N(AIM), "planted", N(O_RDWR), N(0666), N(0)));
    say("TRY", "walk", "out/secret", walk(ROOT, AIM, "out", "secret"));
    say("TRY", "walk", "up/canary", walk(ROOT, AIM, "up", "canary"));
    swapped();
    /* The host's /dev/kmsg. */
    say("SEE", "mknod", "device", send_9p(TMKNOD, "4s4444", N(SCRATCH), "device", N(S_IFCHR | 0666), N(1), N(11), N(0)));
    walk(SCRATCH, AIM, "device", NULL);
    used("device", AIM);
}
