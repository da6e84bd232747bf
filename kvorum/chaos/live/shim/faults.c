/*
 * Faults of the disk and the clock for a process that is not Kvorum's: a library that is preloaded
 * (LD_PRELOAD) into Apache Kafka's JVM and obeys a fault board (runtime/fault_board.py).
 *
 * KVORUM_FAULT_BOARD names the board, KVORUM_FAULT_DIRECTORY the data directory. Calls on files
 * outside of it are never hit, nor are sockets, pipes and terminals.
 *
 * Limits: a store into mapped memory and its msync pass (Kafka's index files), since no call of libc
 * names their file. A wait until a time of the real-time clock ends by the kernel's clock.
 *
 * libfaketime is not used: it knows clocks only, so the disk would need this library all the same;
 * it changes its offset by a file that it reads again every few seconds, where the board is seen by
 * the next call; and it moves the monotonic clock too unless it is told not to, which no step of NTP
 * does.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* The words of runtime/fault_board.py. */
enum {
    MAGIC = 0, SYNC_DELAY_US = 1, SYNC_ERRNO = 2, WRITE_ERRNO = 3, ROOM_BYTES = 4,
    CLOCK_OFFSET_MS = 5, USED_BYTES = 8, DELAYED_SYNCS = 9, FAILED_CALLS = 10, WORDS = 16
};
#define WAIT_NS 10000000L /* A delayed fsync looks at the board so often. */

static volatile int64_t *board;
static char directory[PATH_MAX];
static size_t directory_length;

/* The next definition of a function: libc's. A call may come before the constructor has run. */
#define NEXT(kind, name) ((kind)next_of(&name##_next, #name))
#define DECLARE_NEXT(name) static void *name##_next

DECLARE_NEXT(fsync);
DECLARE_NEXT(fdatasync);
DECLARE_NEXT(write);
DECLARE_NEXT(pwrite);
DECLARE_NEXT(pwrite64);
DECLARE_NEXT(writev);
DECLARE_NEXT(pwritev);
DECLARE_NEXT(pwritev64);
DECLARE_NEXT(pwritev2);
DECLARE_NEXT(pwritev64v2);
DECLARE_NEXT(ftruncate);
DECLARE_NEXT(ftruncate64);
DECLARE_NEXT(gettimeofday);
DECLARE_NEXT(clock_gettime);

static void *next_of(void **known, const char *name)
{
    if (!*known)
        *known = dlsym(RTLD_NEXT, name);
    return *known;
}

/* A process whose faults would silently be missing must not start. */
static void refuse(const char *what, const char *value)
{
    fprintf(stderr, "kvorum fault shim: %s: %s\n", what, value);
    _exit(2);
}

__attribute__((constructor)) static void map_board(void)
{
    const char *path = getenv("KVORUM_FAULT_BOARD");
    const char *below = getenv("KVORUM_FAULT_DIRECTORY");
    if (!path || !below)
        return;
    /* The kernel gives the paths of descriptors without symbolic links. */
    if (!realpath(below, directory))
        refuse("KVORUM_FAULT_DIRECTORY is no directory", below);
    directory_length = strlen(directory);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        refuse("KVORUM_FAULT_BOARD cannot be opened", path);
    struct stat found;
    if (fstat(fd, &found) || found.st_size != WORDS * (off_t)sizeof(int64_t))
        refuse("KVORUM_FAULT_BOARD is no fault board", path);
    void *mapped = mmap(NULL, WORDS * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED || memcmp(mapped, "KVBOARD1", 8))
        refuse("KVORUM_FAULT_BOARD is no fault board of this version", path);
    board = mapped;
}

static void count(int word)
{
    __atomic_fetch_add(&board[word], 1, __ATOMIC_RELAXED);
}

static int fail(int number)
{
    count(FAILED_CALLS);
    errno = number;
    return -1;
}

/* True for a file of the data directory, and for a folder if is_folder_too. */
static int is_ours(int fd, int is_folder_too)
{
    struct stat found;
    char link[64], path[PATH_MAX];
    int saved = errno;
    int is_found = 0;
    if (!fstat(fd, &found) && (S_ISREG(found.st_mode) || (is_folder_too && S_ISDIR(found.st_mode)))) {
        snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        ssize_t length = readlink(link, path, sizeof path - 1);
        if (length >= (ssize_t)directory_length) {
            path[length] = 0;
            char after = path[directory_length];
            is_found = !memcmp(path, directory, directory_length) && (after == '/' || after == 0);
        }
    }
    errno = saved;
    return is_found;
}

static int64_t monotonic_ns(void)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

/* Before an fsync: 0 if it may happen, -1 with errno if it fails. */
static int before_sync(int fd)
{
    if (!board || (!board[SYNC_DELAY_US] && !board[SYNC_ERRNO]) || !is_ours(fd, 1))
        return 0;
    if (board[SYNC_DELAY_US]) {
        count(DELAYED_SYNCS);
        int64_t began_ns = monotonic_ns(), left_ns;
        while ((left_ns = board[SYNC_DELAY_US] * 1000 - (monotonic_ns() - began_ns)) > 0) {
            struct timespec pause = {0, left_ns < WAIT_NS ? left_ns : WAIT_NS};
            nanosleep(&pause, NULL);
        }
    }
    int number = (int)board[SYNC_ERRNO];
    return number ? fail(number) : 0;
}

/* Before a write of `bytes` at `position` (-1: where the file stands): 0, or -1 with errno. */
static int before_write(int fd, off_t position, size_t bytes)
{
    if (!board || (!board[WRITE_ERRNO] && board[ROOM_BYTES] < 0) || !is_ours(fd, 0))
        return 0;
    int number = (int)board[WRITE_ERRNO];
    if (number)
        return fail(number);
    struct stat found;
    int64_t room = board[ROOM_BYTES];
    if (room < 0 || fstat(fd, &found))
        return 0;
    if (position < 0) {
        int flags = fcntl(fd, F_GETFL);
        position = flags >= 0 && (flags & O_APPEND) ? found.st_size : lseek(fd, 0, SEEK_CUR);
    }
    int64_t grows_by = (int64_t)position + (int64_t)bytes - (int64_t)found.st_size;
    if (grows_by <= 0)
        return 0;
    int64_t used = __atomic_add_fetch(&board[USED_BYTES], grows_by, __ATOMIC_RELAXED);
    if (used <= room)
        return 0;
    __atomic_fetch_sub(&board[USED_BYTES], grows_by, __ATOMIC_RELAXED);
    return fail(ENOSPC);
}

static int before_truncate(int fd)
{
    if (!board || !board[WRITE_ERRNO] || !is_ours(fd, 0))
        return 0;
    int number = (int)board[WRITE_ERRNO];
    return number ? fail(number) : 0;
}

static size_t total(const struct iovec *parts, int many)
{
    size_t bytes = 0;
    for (int at = 0; at < many; at++)
        bytes += parts[at].iov_len;
    return bytes;
}

int fsync(int fd)
{
    return before_sync(fd) ? -1 : NEXT(int (*)(int), fsync)(fd);
}

int fdatasync(int fd)
{
    return before_sync(fd) ? -1 : NEXT(int (*)(int), fdatasync)(fd);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    if (before_write(fd, -1, bytes))
        return -1;
    return NEXT(ssize_t (*)(int, const void *, size_t), write)(fd, data, bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    if (before_write(fd, at, bytes))
        return -1;
    return NEXT(ssize_t (*)(int, const void *, size_t, off_t), pwrite)(fd, data, bytes, at);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at)
{
    if (before_write(fd, at, bytes))
        return -1;
    return NEXT(ssize_t (*)(int, const void *, size_t, off64_t), pwrite64)(fd, data, bytes, at);
}

ssize_t writev(int fd, const struct iovec *parts, int many)
{
    if (before_write(fd, -1, total(parts, many)))
        return -1;
    return NEXT(ssize_t (*)(int, const struct iovec *, int), writev)(fd, parts, many);
}

ssize_t pwritev(int fd, const struct iovec *parts, int many, off_t at)
{
    if (before_write(fd, at, total(parts, many)))
        return -1;
    return NEXT(ssize_t (*)(int, const struct iovec *, int, off_t), pwritev)(fd, parts, many, at);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int many, off64_t at)
{
    if (before_write(fd, at, total(parts, many)))
        return -1;
    return NEXT(ssize_t (*)(int, const struct iovec *, int, off64_t), pwritev64)(fd, parts, many, at);
}

ssize_t pwritev2(int fd, const struct iovec *parts, int many, off_t at, int how)
{
    if (before_write(fd, at, total(parts, many)))
        return -1;
    return NEXT(ssize_t (*)(int, const struct iovec *, int, off_t, int), pwritev2)(
        fd, parts, many, at, how);
}

ssize_t pwritev64v2(int fd, const struct iovec *parts, int many, off64_t at, int how)
{
    if (before_write(fd, at, total(parts, many)))
        return -1;
    return NEXT(ssize_t (*)(int, const struct iovec *, int, off64_t, int), pwritev64v2)(
        fd, parts, many, at, how);
}

int ftruncate(int fd, off_t size)
{
    return before_truncate(fd) ? -1 : NEXT(int (*)(int, off_t), ftruncate)(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    return before_truncate(fd) ? -1 : NEXT(int (*)(int, off64_t), ftruncate64)(fd, size);
}

/* Adds the clock's offset to a time, given in seconds and `per_second` parts of one. */
static void step(time_t *seconds, long *part, long per_second)
{
    int64_t offset_ms = board ? board[CLOCK_OFFSET_MS] : 0;
    if (!offset_ms)
        return;
    int64_t moved = *part + offset_ms % 1000 * (per_second / 1000);
    int64_t whole = offset_ms / 1000;
    if (moved < 0) {
        moved += per_second;
        whole--;
    } else if (moved >= per_second) {
        moved -= per_second;
        whole++;
    }
    *seconds += whole;
    *part = moved;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = NEXT(int (*)(clockid_t, struct timespec *), clock_gettime)(clock, now);
    if (!result && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        step(&now->tv_sec, &now->tv_nsec, 1000000000L);
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    int result = NEXT(int (*)(struct timeval *, void *), gettimeofday)(now, zone);
    if (!result)
        step(&now->tv_sec, &now->tv_usec, 1000000L);
    return result;
}

time_t time(time_t *result)
{
    struct timespec now;
    if (clock_gettime(CLOCK_REALTIME, &now))
        return -1;
    if (result)
        *result = now.tv_sec;
    return now.tv_sec;
}
