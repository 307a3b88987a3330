# What containers of Karve may do unless they say otherwise. A changed profile gets another name: replacing one changes
# what running containers may do.

profile karve-default-v1 flags=(attach_disconnected,mediate_deleted) {
  capability,
  file,
  network,
  umount,

  # Processes of the host may signal those of containers; those of containers may signal and trace each other.
  signal (receive) peer=unconfined,
  signal (send, receive) peer=karve-default-v1,
  ptrace (trace, tracedby, read, readby) peer=karve-default-v1,

  deny mount,

  # Of /proc only what belongs to a process is written to, and of /proc/sys what belongs to shared memory.
  deny /proc/* w,
  deny /proc/[^0-9s]*/** w,
  deny /proc/s[^y]*/** w,
  deny /proc/sy[^s]*/** w,
  deny /proc/sys/[^k]** w,
  deny /proc/sys/k[^e]** w,
  deny /proc/sys/kernel/[^s]** w,
  deny /proc/sys/kernel/s[^h]** w,
  deny /proc/sys/kernel/sh[^m]** w,
  deny /proc/{kcore,sysrq-trigger} rwklx,

  # Of /sys only cgroups are written to.
  deny /sys/[^f]*/** wklx,
  deny /sys/f[^s]*/** wklx,
  deny /sys/fs/[^c]*/** wklx,
  deny /sys/fs/c[^g]*/** wklx,
  deny /sys/fs/cg[^r]*/** wklx,
  deny /sys/firmware/** rwklx,
  deny /sys/devices/virtual/powercap/** rwklx,
  deny /sys/kernel/security/** rwklx,
}
