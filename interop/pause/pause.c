/* The process that holds a pod's namespaces: it reaps what is reparented to it and ends on SIGINT or SIGTERM. */
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void reap(int signal) {
  (void)signal;
  while (waitpid(-1, NULL, WNOHANG) > 0) {
  }
}

static void end(int signal) {
  (void)signal;
  _exit(0);
}

int main(void) {
  struct sigaction on_child = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
  struct sigaction on_end = {.sa_handler = end};

  if (sigaction(SIGCHLD, &on_child, NULL) || sigaction(SIGINT, &on_end, NULL) || sigaction(SIGTERM, &on_end, NULL))
    return EXIT_FAILURE;
  for (;;)
    pause();
}
