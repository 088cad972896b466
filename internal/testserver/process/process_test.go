//go:build darwin || linux

package process

import (
	"errors"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// family is a shell script that starts a child, which starts another one, and waits.
const family = `sh -c 'sleep 600 & echo started; wait' & wait`

func startScript(t *testing.T, script string) (*Process, *Tail) {
	t.Helper()
	var log Tail
	p, err := Start(exec.Command("sh", "-c", script), &log, syscall.SIGKILL)
	if err != nil {
		t.Fatal(err)
	}
	return p, &log
}

// await waits until a condition holds.
func await(t *testing.T, subject string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(5 * time.Minute); !condition(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited 5 minutes for %s", subject)
		}
	}
}

func TestKill_EndsDescendants(t *testing.T) {
	t.Parallel()
	p, log := startScript(t, family)
	await(t, "the child's child", func() bool { return log.String() == "started\n" })
	pids, err := Descendants(p.ID())
	if err != nil || len(pids) != 2 {
		t.Errorf("Descendants = %v, %v; want two", pids, err)
	}
	for range 2 { // the second time changes nothing
		if err := p.Kill(); err != nil {
			t.Error(err)
		}
	}
	select {
	case <-p.Exited():
	default:
		t.Error("Kill returned before the end")
	}
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.String() != "signal: killed" {
		t.Errorf("Wait = %v, want signal: killed", err)
	}
	left, err := Descendants(p.ID())
	if err != nil || len(left) > 0 {
		t.Errorf("Descendants = %v, %v; want none", left, err)
	}
}

// A list of the children of a process that has been told to stop may lack one that it is
// just starting.
func TestKill_EndsChildrenThatAreBeingStarted(t *testing.T) {
	t.Parallel()
	for range 20 {
		var log Tail
		p, err := start(exec.Command("sh", "-c", "for n in $(seq 400); do sleep 600 & echo started; done; wait"), &log, syscall.SIGKILL, lingering)
		if err != nil {
			t.Fatal(err)
		}
		await(t, "the first child", func() bool { return log.String() != "" })
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestKill_ProcessEndsDuringKill has processes end while Kill looks for those that they started.
func TestKill_ProcessEndsDuringKill(t *testing.T) {
	t.Parallel()
	for range 20 {
		p, _ := startScript(t, "exec sleep 600")
		if err := syscall.Kill(p.ID(), syscall.SIGKILL); err != nil {
			t.Error(err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStop(t *testing.T) {
	t.Parallel()
	p, log := startScript(t, `trap 'echo stopped; exit' TERM; echo ready; while :; do sleep 0.01; done`)
	await(t, "the trap", func() bool { return log.String() == "ready\n" })
	for range 2 { // the second time changes nothing
		if err := p.Stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	if got := log.String(); got != "ready\nstopped\n" {
		t.Errorf("it printed %q", got)
	}
}

func TestWait(t *testing.T) {
	t.Parallel()
	p, log := startScript(t, "echo out; echo err >&2; exit 3")
	var exit *exec.ExitError
	if err := p.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("Wait = %v, want exit status 3", err)
	}
	if got := log.String(); got != "out\nerr\n" {
		t.Errorf("it printed %q", got)
	}
}

func TestStart_Fails(t *testing.T) {
	t.Parallel()
	if p, err := Start(exec.Command("/nowhere/program"), &Tail{}, syscall.SIGKILL); err == nil || !strings.Contains(err.Error(), "/nowhere/program") {
		t.Errorf("Start = %v, %v; want an error about /nowhere/program", p, err)
	}
}

func TestWait_ReportsSurvivingChildren(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("sh", "-c", "sleep 600 & echo $!; read line")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var log Tail
	p, err := start(cmd, &log, syscall.SIGKILL, time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the child's number", func() bool { return strings.HasSuffix(log.String(), "\n") })
	if err := stdin.Close(); err != nil { // it ends, the child does not
		t.Fatal(err)
	}
	if err := p.Wait(); err == nil || !strings.Contains(err.Error(), "outlives it") {
		t.Errorf("Wait = %v, want that something outlives the process", err)
	}
	if out, err := exec.Command("kill", strings.TrimSpace(log.String())).CombinedOutput(); err != nil {
		t.Errorf("kill: %v: %s", err, out)
	}
}
