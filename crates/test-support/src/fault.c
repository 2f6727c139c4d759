/* Stands between a program and the file calls of libc, counts them, and at a given one ends the
 * program or makes the call fail.
 *
 *   FAULT_ACTION   kill: SIGKILL instead of the call
 *                  tear: a write does half of its work first, then SIGKILL; other calls like kill
 *                  fail: the call returns FAULT_ERRNO, from FAULT_AT on (never an unlink)
 *                  once: the same for that call alone
 *                  none: only count
 *   FAULT_AT       which call, counted from 1
 *   FAULT_ERRNO    a number
 *   FAULT_WHILE    a path: nothing is counted or done unless it exists
 *   FAULT_LOG      a path: every counted call is written there as a line
 *   FAULT_CLOCK    how many seconds the clock is ahead, while FAULT_WHILE exists
 *   FAULT_SYNCED   a folder: the content of each file, and the names in each folder, as of its last fsync or fdatasync, by
 *                  inode number
 *   FAULT_DEAF     file events cannot be had: every instance that a user may have is taken
 *
 * An open counts when it makes a file. Only calls on files and folders count: pipes, sockets and event descriptors are left alone, so a
 * program can always say what happened to it.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

enum verdict { PASS, DIE, TEAR, FAIL };
enum { ACT_NONE, ACT_KILL, ACT_TEAR, ACT_FAIL, ACT_ONCE };

static atomic_long calls;
static int action = -1;
static long at, number;
static const char *only_while, *log_path, *synced_path;
static long ahead;

__attribute__((constructor)) static void configure(void) {
  const char *name = getenv("FAULT_ACTION");
  const char *text;
  action = ACT_NONE;
  if (name && !strcmp(name, "kill")) action = ACT_KILL;
  if (name && !strcmp(name, "tear")) action = ACT_TEAR;
  if (name && !strcmp(name, "fail")) action = ACT_FAIL;
  if (name && !strcmp(name, "once")) action = ACT_ONCE;
  at = (text = getenv("FAULT_AT")) ? atol(text) : 0;
  number = (text = getenv("FAULT_ERRNO")) ? atol(text) : EIO;
  only_while = getenv("FAULT_WHILE");
  log_path = getenv("FAULT_LOG");
  synced_path = getenv("FAULT_SYNCED");
  ahead = (text = getenv("FAULT_CLOCK")) ? atol(text) : 0;
}

static int is_the_time(void) {
  int kept = errno;
  int is_there = !only_while || syscall(SYS_faccessat, AT_FDCWD, only_while, F_OK) == 0;
  errno = kept;
  return is_there;
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int result = (int)syscall(SYS_clock_gettime, clock, now);
  if (result == 0 && clock == CLOCK_REALTIME && ahead && is_the_time()) now->tv_sec += ahead;
  return result;
}

static int is_armed(void) {
  return action >= 0 && is_the_time();
}

static void note(const char *call, long count) {
  char line[64];
  int length, fd;
  if (!log_path) return;
  fd = (int)syscall(SYS_openat, AT_FDCWD, log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return;
  length = snprintf(line, sizeof line, "%ld %s\n", count, call);
  syscall(SYS_write, fd, line, (size_t)length);
  syscall(SYS_close, fd);
}

static enum verdict meet(const char *call) {
  int kept = errno;
  long count;
  if (!is_armed()) {
    errno = kept;
    return PASS;
  }
  count = atomic_fetch_add(&calls, 1) + 1;
  note(call, count);
  errno = kept;
  if (action == ACT_KILL && count == at) return DIE;
  if (action == ACT_TEAR && count == at) return TEAR;
  if (action == ACT_FAIL && count >= at) return FAIL;
  if (action == ACT_ONCE && count == at) return FAIL;
  return PASS;
}

static enum verdict meet_fd(const char *call, int fd) {
  struct stat found;
  int kept = errno;
  if (fstat(fd, &found) != 0 || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) {
    errno = kept;
    return PASS;
  }
  errno = kept;
  return meet(call);
}

static void die(void) {
  syscall(SYS_kill, syscall(SYS_getpid), SIGKILL);
  for (;;) pause();
}

/* A file that is there is opened without needing room. */
static int is_new(int dir, const char *path) {
  int kept = errno;
  int there = syscall(SYS_faccessat, dir, path, F_OK) == 0;
  errno = kept;
  return !there;
}

static int failed(void) {
  errno = (int)number;
  return -1;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

#define GATE(call)                      \
  switch (call) {                       \
    case DIE: case TEAR: die(); break;  \
    case FAIL: return failed();         \
    case PASS: break;                   \
  }

ssize_t write(int fd, const void *bytes, size_t length) {
  enum verdict verdict = meet_fd("write", fd);
  if (verdict == TEAR) REAL(write)(fd, bytes, length / 2);
  GATE(verdict)
  return REAL(write)(fd, bytes, length);
}

ssize_t pwrite(int fd, const void *bytes, size_t length, off_t offset) {
  enum verdict verdict = meet_fd("pwrite", fd);
  if (verdict == TEAR) REAL(pwrite)(fd, bytes, length / 2, offset);
  GATE(verdict)
  return REAL(pwrite)(fd, bytes, length, offset);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t offset) {
  enum verdict verdict = meet_fd("pwrite64", fd);
  if (verdict == TEAR) REAL(pwrite64)(fd, bytes, length / 2, offset);
  GATE(verdict)
  return REAL(pwrite64)(fd, bytes, length, offset);
}

static void copy_file(int in, int out) {
  char bytes[1 << 16];
  ssize_t length;
  while ((length = syscall(SYS_read, in, bytes, sizeof bytes)) > 0) syscall(SYS_write, out, bytes, (size_t)length);
  syscall(SYS_close, in);
}

static void copy_names(int in, int out) {
  char line[512];
  struct dirent *entry;
  DIR *folder = fdopendir(in);
  while (folder && (entry = readdir(folder))) {
    int length = snprintf(line, sizeof line, "%lu %s\n", (unsigned long)entry->d_ino, entry->d_name);
    syscall(SYS_write, out, line, (size_t)length);
  }
  if (folder) closedir(folder);
}

/* Copies the content of a file or the names in a folder, which a power failure cannot take from now on. The copy gets its name when it
 * is whole, as another thread may be killed meanwhile. */
static void keep_synced(int fd) {
  struct stat found;
  char from[64], to[4096], made[4096 + 32];
  int in, out, kept = errno;
  if (!synced_path || fstat(fd, &found) != 0 || !(S_ISREG(found.st_mode) || S_ISDIR(found.st_mode))) return;
  snprintf(from, sizeof from, "/proc/self/fd/%d", fd);
  snprintf(to, sizeof to, "%s/%lu", synced_path, (unsigned long)found.st_ino);
  snprintf(made, sizeof made, "%s.%ld", to, syscall(SYS_gettid));
  in = (int)syscall(SYS_openat, AT_FDCWD, from, O_RDONLY | O_CLOEXEC);
  out = (int)syscall(SYS_openat, AT_FDCWD, made, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (S_ISDIR(found.st_mode)) copy_names(in, out);
  else copy_file(in, out);
  syscall(SYS_close, out);
  syscall(SYS_renameat2, AT_FDCWD, made, AT_FDCWD, to, 0);
  errno = kept;
}

int fsync(int fd) {
  int result;
  GATE(meet_fd("fsync", fd))
  result = REAL(fsync)(fd);
  if (result == 0) keep_synced(fd);
  return result;
}

int fdatasync(int fd) {
  int result;
  GATE(meet_fd("fdatasync", fd))
  result = REAL(fdatasync)(fd);
  if (result == 0) keep_synced(fd);
  return result;
}

int ftruncate(int fd, off_t length) {
  GATE(meet_fd("ftruncate", fd))
  return REAL(ftruncate)(fd, length);
}

int ftruncate64(int fd, off64_t length) {
  GATE(meet_fd("ftruncate64", fd))
  return REAL(ftruncate64)(fd, length);
}

int linkat(int from, const char *old, int to, const char *new, int flags) {
  GATE(meet("linkat"))
  return REAL(linkat)(from, old, to, new, flags);
}

int renameat(int from, const char *old, int to, const char *new) {
  GATE(meet("renameat"))
  return REAL(renameat)(from, old, to, new);
}

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
  GATE(meet("renameat2"))
  return REAL(renameat2)(from, old, to, new, flags);
}

int mkdirat(int dir, const char *name, mode_t mode) {
  GATE(meet("mkdirat"))
  return REAL(mkdirat)(dir, name, mode);
}

/* A full or failing disk still removes names, so these never fail on purpose. */
int unlinkat(int dir, const char *name, int flags) {
  enum verdict verdict = meet("unlinkat");
  if (verdict == DIE || verdict == TEAR) die();
  return REAL(unlinkat)(dir, name, flags);
}

int unlink(const char *name) {
  enum verdict verdict = meet("unlink");
  if (verdict == DIE || verdict == TEAR) die();
  return REAL(unlink)(name);
}

#define OPENING(name, dir, ...)                                     \
  {                                                             \
    mode_t mode = 0;                                            \
    if (flags & (O_CREAT | O_TMPFILE)) {                        \
      va_list rest;                                             \
      va_start(rest, flags);                                    \
      mode = va_arg(rest, mode_t);                              \
      va_end(rest);                                             \
    }                                                           \
    if ((flags & O_CREAT) && is_new(dir, path)) GATE(meet(#name)) \
    return REAL(name)(__VA_ARGS__, flags, mode);                \
  }

int open(const char *path, int flags, ...) OPENING(open, AT_FDCWD, path)
int open64(const char *path, int flags, ...) OPENING(open64, AT_FDCWD, path)
int openat(int dir, const char *path, int flags, ...) OPENING(openat, dir, dir, path)
int openat64(int dir, const char *path, int flags, ...) OPENING(openat64, dir, dir, path)

int inotify_init1(int flags) {
  if (getenv("FAULT_DEAF")) {
    errno = EMFILE;
    return -1;
  }
  return REAL(inotify_init1)(flags);
}
