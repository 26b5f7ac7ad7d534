/* A small file's text, such as sysfs has: its length, or -1 and no text. */

#include <fcntl.h>
#include <unistd.h>

static int text(const char *path, char *into, int room) {
    int file = open(path, O_RDONLY | O_CLOEXEC), got = file < 0 ? -1 : (int)read(file, into, room - 1);
    if (file >= 0)
        close(file);
    into[got < 0 ? 0 : got] = 0;
    return got;
}
