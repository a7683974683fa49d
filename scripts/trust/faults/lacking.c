/* Preloaded, it makes calls fail below a folder; see file_systems.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int below(const char *path) {  /* whether the call is to fail */
  char real[PATH_MAX];
  const char *top = getenv("LACKING_BELOW");
  return top && realpath(path, real) && !strncmp(real, top, strlen(top));
}
static int opened(int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return realpath(link, path) && below(path);
}
static int lacks(const char *name) {
  const char *call = getenv("LACKING_CALL");
  return call && !strcmp(call, name);
}
static int fail(void) { errno = atoi(getenv("LACKING_ERROR")); return -1; }
#define PLAIN(type, name) __typeof__(type) plain = (__typeof__(type))dlsym(RTLD_NEXT, name)

int chmod(const char *path, mode_t mode) {
  PLAIN(int (*)(const char *, mode_t), "chmod");
  return lacks("chmod") && below(path) ? fail() : plain(path, mode);
}
int fchmod(int fd, mode_t mode) {
  PLAIN(int (*)(int, mode_t), "fchmod");
  return lacks("chmod") && opened(fd) ? fail() : plain(fd, mode);
}
int fsync(int fd) {
  PLAIN(int (*)(int), "fsync");
  struct stat at;
  int folder = !fstat(fd, &at) && S_ISDIR(at.st_mode);
  return (lacks("fsync") || (folder && lacks("fsync of a folder"))) && opened(fd) ? fail()
                                                                                  : plain(fd);
}
int flock(int fd, int how) {
  PLAIN(int (*)(int, int), "flock");
  return lacks("flock") && opened(fd) ? fail() : plain(fd, how);
}
static void die_at(const char *to) {  /* before the checkpoint of this number is the newest */
  static int seen = 0;
  const char *number = getenv("KILLED_AT"), *end = strrchr(to, '/');
  if (number && end && !strcmp(end, "/latest.json") && ++seen == atoi(number)) raise(SIGKILL);
}
int rename(const char *from, const char *to) {
  PLAIN(int (*)(const char *, const char *), "rename");
  die_at(to);
  return lacks("rename") && below(from) ? fail() : plain(from, to);
}
