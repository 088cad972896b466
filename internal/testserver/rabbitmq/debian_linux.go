package rabbitmq

import (
	"os/exec"
	"syscall"
)

// mountAndEnter is a shell script that runs a command in another root. Erlang reads
// /proc and /dev, which are mounted there for it alone: the command has a mount
// namespace of its own, so that nothing has to be unmounted, and nobody who removes
// the root removes the machine's devices.
const mountAndEnter = `mount --bind /proc "$0/proc" && mount --bind /dev "$0/dev" && exec chroot "$0" "$@"`

// enter has a command run in another root. Its path is one in that root.
func enter(cmd *exec.Cmd, root string) {
	cmd.Args = append([]string{"sh", "-c", mountAndEnter, root, cmd.Path}, cmd.Args[1:]...)
	cmd.Path, cmd.Err = "/bin/sh", nil
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
}
