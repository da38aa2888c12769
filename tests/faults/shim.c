/* Fails or kills at the n-th file-system call below a folder. Preloaded into a process and its children:
 *
 *   FAULT_FOLDER   calls on paths that begin with this count
 *   FAULT_KIND     open (for writing), write, fsync, rename, link, mkdir, unlink, close, flock, truncate,
 *                  read, or "any" of them but read
 *   FAULT_NUMBER   which call it is, counted from 1 over all processes
 *   FAULT_ERRNO    what the call fails with; 0: the process is killed before the call
 *   FAULT_STICKY   if set, all later calls fail as well: a dead disk
 *   FAULT_COUNTER  a file of 8 bytes that holds the count
 *   FAULT_LOG      a file that gets a line for every counted call: "number kind path", with "fired" at its end
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define ROOM 8192

static long next_number(void)
{
    int file = syscall(SYS_openat, AT_FDCWD, getenv("FAULT_COUNTER"), O_RDWR);
    long *count = mmap(NULL, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    syscall(SYS_close, file);
    long number = __atomic_add_fetch(count, 1, __ATOMIC_SEQ_CST);
    munmap(count, sizeof(long));
    return number;
}

static void log_call(long number, const char *kind, const char *path, int fires)
{
    char line[ROOM + 64];
    int length = snprintf(line, sizeof line, "%ld %s %s%s\n", number, kind, path, fires ? " fired" : "");
    int file = syscall(SYS_openat, AT_FDCWD, getenv("FAULT_LOG"), O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (syscall(SYS_write, file, line, length) < 0)
        abort();
    syscall(SYS_close, file);
}

/* The absolute path of what a call is about: a path from a folder, or without one an open file. */
static void resolve(int folder, const char *path, char *full)
{
    char link[64];
    ssize_t length = 0;
    if (path && path[0] == '/') {
        snprintf(full, ROOM, "%s", path);
        return;
    }
    if (folder == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    length = readlink(link, full, ROOM / 2);
    length = length < 0 ? 0 : length;
    full[length] = 0;
    if (path)
        snprintf(full + length, ROOM - length, "/%s", path);
}

/* The errno that this call fails with, or 0. */
static int fault(const char *kind, int folder, const char *path)
{
    const char *below = getenv("FAULT_FOLDER"), *wanted = getenv("FAULT_KIND");
    char full[ROOM];
    int saved = errno;
    if (!below || !wanted)
        return 0;
    if (strcmp(wanted, kind) && (strcmp(wanted, "any") || !strcmp(kind, "read")))
        return 0;
    resolve(folder, path, full);
    errno = saved;
    if (strncmp(full, below, strlen(below)))
        return 0;
    long number = next_number(), chosen = atol(getenv("FAULT_NUMBER"));
    int fires = getenv("FAULT_STICKY") ? number >= chosen : number == chosen;
    log_call(number, kind, full, fires);
    errno = saved;
    if (!fires)
        return 0;
    int code = atoi(getenv("FAULT_ERRNO"));
    if (!code)
        syscall(SYS_kill, getpid(), SIGKILL);
    return code;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define FAIL(kind, folder, path, result)             \
    do {                                             \
        int code = fault(kind, folder, path);        \
        if (code) {                                  \
            errno = code;                            \
            return result;                           \
        }                                            \
    } while (0)

#define WRITES(flags) ((flags) & (O_WRONLY | O_RDWR | O_CREAT))
#define MODE(flags, mode)                            \
    if ((flags) & (O_CREAT | O_TMPFILE)) {           \
        va_list arguments;                           \
        va_start(arguments, flags);                  \
        mode = va_arg(arguments, mode_t);            \
        va_end(arguments);                           \
    }

#define OPEN(name)                                   \
    int name(const char *path, int flags, ...)       \
    {                                                \
        mode_t mode = 0;                             \
        MODE(flags, mode)                            \
        if (WRITES(flags))                           \
            FAIL("open", AT_FDCWD, path, -1);        \
        return REAL(name)(path, flags, mode);        \
    }
OPEN(open)
OPEN(open64)

#define OPENAT(name)                                            \
    int name(int folder, const char *path, int flags, ...)      \
    {                                                           \
        mode_t mode = 0;                                        \
        MODE(flags, mode)                                       \
        if (WRITES(flags))                                      \
            FAIL("open", folder, path, -1);                     \
        return REAL(name)(folder, path, flags, mode);           \
    }
OPENAT(openat)
OPENAT(openat64)

#define FOPEN(name)                                             \
    FILE *name(const char *path, const char *mode)              \
    {                                                           \
        if (strpbrk(mode, "wa+"))                               \
            FAIL("open", AT_FDCWD, path, NULL);                 \
        return REAL(name)(path, mode);                          \
    }
FOPEN(fopen)
FOPEN(fopen64)

/* name, kind, result type, arguments as declared, arguments as passed, folder, path */
#define CALL(name, kind, type, declared, passed, folder, path)  \
    type name declared                                          \
    {                                                           \
        FAIL(kind, folder, path, -1);                           \
        return REAL(name) passed;                               \
    }
CALL(write, "write", ssize_t, (int f, const void *data, size_t n), (f, data, n), f, NULL)
CALL(pwrite, "write", ssize_t, (int f, const void *data, size_t n, off_t at), (f, data, n, at), f, NULL)
CALL(pwrite64, "write", ssize_t, (int f, const void *data, size_t n, off64_t at), (f, data, n, at), f, NULL)
CALL(writev, "write", ssize_t, (int f, const struct iovec *parts, int n), (f, parts, n), f, NULL)
CALL(read, "read", ssize_t, (int f, void *data, size_t n), (f, data, n), f, NULL)
CALL(pread, "read", ssize_t, (int f, void *data, size_t n, off_t at), (f, data, n, at), f, NULL)
CALL(pread64, "read", ssize_t, (int f, void *data, size_t n, off64_t at), (f, data, n, at), f, NULL)
CALL(fsync, "fsync", int, (int f), (f), f, NULL)
CALL(fdatasync, "fsync", int, (int f), (f), f, NULL)
CALL(flock, "flock", int, (int f, int operation), (f, operation), f, NULL)
CALL(ftruncate, "truncate", int, (int f, off_t length), (f, length), f, NULL)
CALL(ftruncate64, "truncate", int, (int f, off64_t length), (f, length), f, NULL)
CALL(rename, "rename", int, (const char *old, const char *new), (old, new), AT_FDCWD, new)
CALL(renameat, "rename", int, (int a, const char *old, int b, const char *new), (a, old, b, new), b, new)
CALL(renameat2, "rename", int, (int a, const char *old, int b, const char *new, unsigned flags),
     (a, old, b, new, flags), b, new)
CALL(link, "link", int, (const char *old, const char *new), (old, new), AT_FDCWD, new)
CALL(linkat, "link", int, (int a, const char *old, int b, const char *new, int flags), (a, old, b, new, flags), b, new)
CALL(symlink, "link", int, (const char *target, const char *new), (target, new), AT_FDCWD, new)
CALL(symlinkat, "link", int, (const char *target, int b, const char *new), (target, b, new), b, new)
CALL(mkdir, "mkdir", int, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path)
CALL(mkdirat, "mkdir", int, (int folder, const char *path, mode_t mode), (folder, path, mode), folder, path)
CALL(unlink, "unlink", int, (const char *path), (path), AT_FDCWD, path)
CALL(unlinkat, "unlink", int, (int folder, const char *path, int flags), (folder, path, flags), folder, path)
CALL(rmdir, "unlink", int, (const char *path), (path), AT_FDCWD, path)

/* A close that fails has closed the file. */
int close(int file)
{
    int code = fault("close", file, NULL);
    int result = REAL(close)(file);
    if (!code)
        return result;
    errno = code;
    return -1;
}
