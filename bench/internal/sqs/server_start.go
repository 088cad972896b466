//go:build darwin || linux

package sqs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs"
)

// serverVariable makes this program a server until its standard input ends, as it does when the parent has
// died: a separate process has a separate garbage collector, and its allocations are not counted. The value is the
// delay of each answer.
const serverVariable = "REPRISE_BENCH_SQS_SERVER"

// RunServerProcess runs the server and does not return, if this process is one. Otherwise it returns.
func RunServerProcess() {
	latency := os.Getenv(serverVariable)
	if latency == "" {
		return
	}
	if err := serveUntilEnd(latency); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveUntilEnd(latency string) error {
	delay, err := time.ParseDuration(latency)
	if err != nil {
		return err
	}
	s, err := sqs.Start(sqs.Config{})
	if err != nil {
		return err
	}
	if delay > 0 {
		s.DelayAnswer(sqs.Match{Times: -1}, delay)
	}
	fmt.Println(s.URL())
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, s.Stop())
}

// startProcess starts this program a second time, as a server that keeps its messages in memory and delays each answer
// by latency.
func startProcess(latency time.Duration) (url string, stop func() error, err error) {
	program, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.Command(program) //nolint:gosec // it is this program
	cmd.Env = append(os.Environ(), serverVariable+"="+latency.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("the server did not tell its address: %w", err), stop())
	}
	return strings.TrimSpace(line), stop, nil
}

// countRequests returns the number of requests that a server has had.
func countRequests(ctx context.Context, url string) (int, error) {
	counts, err := sqs.RequestsAt(ctx, url, "")
	sum := 0
	for _, n := range counts {
		sum += n
	}
	return sum, err
}
