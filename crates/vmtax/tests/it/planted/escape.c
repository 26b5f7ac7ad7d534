/* A guest's first program: becomes /init, and in a child tries to get out of the tree at /share and to write outside it,
 * first as any program would, then with messages that no kernel's client would send. On the console, one a line:
 *
 * OWN what done|refused N   inside the tree: done, if it may be written to
 * TRY what done|refused N   leads outside: refused
 * SEE what done|refused N   may be either, since it may be the guest's own tree that it leads to: the host's files tell
 * GOT text                  what was read
 */
#define _GNU_SOURCE
#include "virtio.h"
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>

static const char *outside;

/* Names that are none, or lead out of any folder; nothing that this test's machine would miss. */
static const char *names[] = {"..", "../canary", "../../canary", "../../../outside/planted", "a/../../../canary",
                              "scratch/../../canary", "../beside/planted", ".", 0};
#define NAMES (int)(sizeof names / sizeof *names)

/* `error` is 0, or a positive number. */
static void say(const char *kind, const char *what, const char *name, int error) {
    if (error)
        printf("%s %s %s refused %d\n", kind, what, name, error);
    else
        printf("%s %s %s done\n", kind, what, name);
}

#include "raw_9p.h"
#include "raw_fuse.h"

static void told(const char *kind, const char *what, const char *name, int result) {
    say(kind, what, name, result < 0 ? errno : 0);
}

static void reads(const char *path) {
    char has[100];
    int got = text(path, has, sizeof has);
    told("SEE", "read", path, got);
    if (got > 0)
        printf("GOT %s\n", has);
}

static void writes(const char *path) {
    int file = open(path, O_WRONLY | O_CREAT, 0644);
    told("SEE", "write", path, file < 0 ? -1 : (int)write(file, "planted", 7));
    if (file >= 0)
        close(file);
}

/* By names and links, made by the host (`out`, `up`) or here. */
static void as_any_program(void) {
    char far[300];
    int inside = open("/share/scratch/inside", O_WRONLY | O_CREAT, 0644);
    told("OWN", "create", "inside", inside);
    close(inside);
    symlink(outside, "/share/scratch/abs");
    symlink("../../../../../../../../../..", "/share/scratch/high");
    symlink("../../canary", "/share/scratch/near");
    snprintf(far, sizeof far, "/share/scratch/high%s", outside);
    const char *folders[] = {"/share/out", "/share/up", "/share/scratch/abs", "/share/scratch/high", far, "/share/.."};
    for (unsigned i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[400];
        snprintf(path, sizeof path, "%s/secret", folders[i]);
        reads(path);
        writes(path);
        link(path, "/share/scratch/hard"), linkat(AT_FDCWD, path, AT_FDCWD, "/share/scratch/hard", AT_SYMLINK_FOLLOW);
        chmod(path, 0777), truncate(path, 0), rename(path, "/share/scratch/stolen");
        snprintf(path, sizeof path, "%s/planted", folders[i]);
        writes(path);
        mkdir(path, 0777), symlink("x", path), rename("/share/scratch/inside", path), unlink(path);
    }
    reads("/share/scratch/near"), writes("/share/scratch/near"), writes("/share/scratch/../../canary");
    reads("/share/scratch/hard");
    writes("/share/scratch/inside");
}

/* A folder is a link at the moment when the server gets to it. */
static void swapping(void) {
    mkdir("/share/scratch/swap", 0777);
    symlink(outside, "/share/scratch/swap2");
    pid_t swapper = fork();
    while (!swapper)
        renameat2(AT_FDCWD, "/share/scratch/swap", AT_FDCWD, "/share/scratch/swap2", RENAME_EXCHANGE),
            rename("/share/scratch/swap", "/share/scratch/swap3"), rename("/share/scratch/swap2", "/share/scratch/swap"),
            rename("/share/scratch/swap3", "/share/scratch/swap2");
    char has[100];
    int read = 0;
    for (time_t until = time(NULL) + 2; time(NULL) < until;) {
        int file = open("/share/scratch/swap/planted", O_WRONLY | O_CREAT, 0666);
        if (file >= 0)
            close(file);
        mkdir("/share/scratch/swap/planted-folder", 0777);
        if (text("/share/scratch/swap/secret", has, sizeof has) > 0 && !read++)
            printf("GOT %s\n", has);
        unlink("/share/scratch/swap/secret");
    }
    kill(swapper, SIGKILL);
    waitpid(swapper, NULL, 0);
}

static int mounted(char *kind) {
    static char all[20000];
    text("/proc/mounts", all, sizeof all);
    char *at = strstr(all, " /share ");
    return at && sscanf(at, " /share %29s", kind) == 1;
}

static void escape(void) {
    char kind[30] = "";
    while (!mounted(kind))
        usleep(10000);
    /* Until the test has put what is to be found outside. */
    sleep(1);
    as_any_program();
    swapping();
    if (strncmp(kind, "nfs", 3)) {
        int stays = umount("/share");
        told("OWN", "unmount", "/share", stays);
        if (stays)
            printf("RAW broken: still mounted\n");
        else if (!strcmp(kind, "9p"))
            raw_9p();
        else
            raw_fuse();
    }
    printf("ESCAPE END\n");
}

int main(void) {
    static char secret[300];
    outside = getenv("PLANTED_OUTSIDE");
    if (outside)
        snprintf(secret, sizeof secret, "%s/secret", outside);
    names[NAMES - 1] = secret;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (outside && fork() == 0) {
        escape();
        return 0;
    }
    execl("/init", "/init", NULL);
    return 1;
}
