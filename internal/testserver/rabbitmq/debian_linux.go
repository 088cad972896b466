package rabbitmq

import (
	"os/exec"
	"syscall"
)

// mountAndEnter is a shell script that runs a command in another root. Erlang reads /proc and
// /dev, and its data may be in the file system in memory below /dev. They are mounted there
// only for the command, which has a separate mount namespace: nothing has to be unmounted,
// and removing the root does not remove the machine's devices.
const mountAndEnter = `mount --bind /proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"`

// enter makes a command run in another root. The command's path is a path in that root.
func enter(cmd *exec.Cmd, root string) {
	cmd.Args = append([]string{"sh", "-c", mountAndEnter, root, cmd.Path}, cmd.Args[1:]...)
	cmd.Path, cmd.Err = "/bin/sh", nil
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
}
