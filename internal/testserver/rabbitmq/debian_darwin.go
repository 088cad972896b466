package rabbitmq

import (
	"errors"
	"os/exec"
)

// enter sets an error: macOS cannot run the programs.
func enter(cmd *exec.Cmd, _ string) {
	cmd.Err = errors.New("the programs of Debian do not run on macOS")
}
