//go:build darwin || linux

package postgres

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"

	"github.com/reprise-go/reprise/internal/testserver/process"
)

// console runs statements as the superuser in the database postgres, one after the other, in
// a psql that stays: tests create and drop hundreds of databases, and a start of psql costs as
// much as that.
type console struct {
	start func() *exec.Cmd

	mu     sync.Mutex // guards the fields below
	cmd    *exec.Cmd  // nil: none runs
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *process.Tail
}

// answerEnd begins the line after the output of a statement.
const answerEnd = "-- the answer ends with SQLSTATE "

// exec runs a statement. A psql whose server has been restarted since is replaced.
func (c *console) exec(ctx context.Context, statement string) (rows string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cmd != nil {
		if rows, err := c.ask(ctx, "select 1"); err == nil && rows != "" {
			return c.ask(ctx, statement)
		}
		c.end()
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
	}
	if err := c.begin(); err != nil {
		return "", err
	}
	return c.ask(ctx, statement)
}

func (c *console) begin() (err error) {
	cmd := c.start()
	c.stderr = &process.Tail{}
	cmd.Stderr = c.stderr
	if c.in, err = cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	c.out = bufio.NewReader(out)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("psql: %w", err)
	}
	c.cmd = cmd
	return nil
}

// ask runs a statement in the psql that runs. The end of ctx kills it.
func (c *console) ask(ctx context.Context, statement string) (rows string, err error) {
	stop := context.AfterFunc(ctx, func() { _ = c.cmd.Process.Kill() })
	defer stop()
	if _, err := fmt.Fprintf(c.in, "%s;\n\\if :ERROR\n\\echo :LAST_ERROR_MESSAGE\n\\endif\n\\echo '%s':SQLSTATE\n", statement, answerEnd); err != nil {
		return "", c.lost(ctx, err)
	}
	var lines []string
	for {
		line, err := c.out.ReadString('\n')
		if err != nil {
			return "", c.lost(ctx, err)
		}
		line = strings.TrimSuffix(line, "\n")
		state, ended := strings.CutPrefix(line, answerEnd)
		switch {
		case !ended:
			lines = append(lines, line)
		case state != "00000":
			return "", fmt.Errorf("psql: %s (SQLSTATE %s)", strings.Join(lines, "\n"), state)
		default:
			return strings.Join(lines, "\n"), nil
		}
	}
}

// lost ends a psql that does not answer.
func (c *console) lost(ctx context.Context, err error) error {
	c.end()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("psql: %w: %s", err, strings.TrimSpace(c.stderr.String()))
}

// end kills the psql that runs, if any.
func (c *console) end() {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait() // it was killed
	c.cmd = nil
}

// close ends the console.
func (c *console) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
}
