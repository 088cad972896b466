package filetransport_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/examples/filetransport"
)

// TestKill_FilesLeftBehind puts files where a kill leaves them, one for each moment.
func TestKill_FilesLeftBehind(t *testing.T) {
	const content = "{}\nm"
	for name, c := range map[string]struct {
		file, content string
		count         int // of the next delivery; 0: none
		left          int // files, without it
	}{
		"in Send, before the content was written":    {"unsent-ID", "", 0, 1},
		"in Send, with half of the content":          {"unsent-ID", "{", 0, 1},
		"in Send, before the rename":                 {"unsent-ID", content, 0, 1},
		"in Send, after the rename":                  {past() + "_1_ID_new", content, 1, 0},
		"in Send of a delayed message":               {future() + "_1_ID_new", content, 0, 1},
		"after a claim":                              {future() + "_1_ID_held-T", content, 0, 1},
		"after a claim whose lock has run out":       {past() + "_1_ID_held-T", content, 2, 0},
		"after a claim of what was given back twice": {past() + "_3_ID_held-T", content, 4, 0},
		"after Renew":                                {at(time.Now().Add(2*time.Hour)) + "_2_ID_held-T", content, 0, 1},
		"after Abandon":                              {past() + "_2_ID_back", content, 2, 0},
		"after Release":                              {past() + "_1_ID_back", content, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			transport, dir := opened(t, filetransport.Config{})
			put(t, dir, c.file, c.content)
			r := receiver(t, transport, 1)
			if c.count > 0 {
				d := receive(t, r)
				equal(t, "body", string(d.Incoming().Body), "m")
				equal(t, "count", d.Incoming().DeliveryCount, c.count)
				settled(t, d.Complete(t.Context()))
			}
			nothing(t, r)
			equal(t, "files left", len(names(t, dir)), c.left)
		})
	}
}

// TestKill_LosesNothing kills processes that send and receive, at random moments.
func TestKill_LosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("several processes: not in short runs")
	}
	t.Parallel()
	// Much longer than any process waits for its turn on a busy machine: a message whose lock
	// has run out belongs to another one.
	f := newFleet(t, 10*time.Second)
	roles := []string{"send", "settle", "settle", "settle"}
	crew := make([]*process, len(roles))
	for i, role := range roles {
		crew[i] = f.start(role)
	}
	for range 40 {
		i := rand.IntN(len(crew))
		crew[i].works()
		time.Sleep(rand.N(20 * time.Millisecond)) // to kill it anywhere
		crew[i].kill()
		crew[i] = f.start(roles[i])
	}
	for !f.hasTried() {
		time.Sleep(100 * time.Millisecond)
	}
	for _, p := range crew {
		p.kill()
	}

	// The messages that are left are redelivered once their locks have ended.
	transport := open(t, filetransport.Config{Dir: f.dir})
	r := receiver(t, transport, 100)
	for {
		left := 0
		for _, name := range names(t, f.queue) {
			if !strings.HasPrefix(name, "unsent-") {
				left++
			}
		}
		if left == 0 {
			break
		}
		d := receive(t, r)
		if d.Incoming().Malformed != nil || d.Incoming().ID != string(d.Incoming().Body) {
			t.Errorf("received %+v", d.Incoming())
		}
		f.log("received %s", d.Incoming().ID)
		f.log("completing %s", d.Incoming().ID)
		settled(t, d.Complete(t.Context()))
	}

	sent, completing, completed := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, e := range f.events() {
		switch e.kind {
		case "sent":
			sent[e.id] = true
		case "completing":
			completing[e.id] = true
		case "completed":
			completed[e.id] = true
		case "received":
			if completed[e.id] {
				t.Errorf("message %s was delivered after Complete had returned", e.id)
			}
		default:
			t.Errorf("%s %s %s", e.kind, e.id, e.text)
		}
	}
	for id := range sent {
		if !completing[id] {
			t.Errorf("message %s is lost", id)
		}
	}
	t.Logf("sent %d, completed %d", len(sent), len(completed))
}

// hasTried reports whether messages were sent, completed and delivered again.
func (f *fleet) hasTried() bool {
	seen := map[string]bool{}
	for _, e := range f.events() {
		seen[e.kind] = true
		if e.kind == "received" && !strings.HasPrefix(e.text, "1 ") {
			seen["redelivered"] = true
		}
	}
	return seen["sent"] && seen["completed"] && seen["redelivered"]
}

// TestProcesses_Compete lets two processes receive 2,000 messages, and more until each of
// them has received some.
func TestProcesses_Compete(t *testing.T) {
	if testing.Short() {
		t.Skip("several processes: not in short runs")
	}
	t.Parallel()
	f := newFleet(t, 10*time.Minute)
	crew := []*process{f.start("complete"), f.start("complete")}
	transport := open(t, filetransport.Config{Dir: f.dir})
	messages := 0
	send := func(n int) {
		out := make([]core.Outgoing, n)
		for i := range out {
			id := strconv.Itoa(messages + i)
			out[i] = core.Outgoing{ID: id, Queue: "orders", Body: []byte(id), Headers: core.HeadersFromMap(map[string]string{headers.MessageID: id})}
		}
		settled(t, transport.Send(t.Context(), out...))
		messages += n
		for len(names(t, f.queue)) > 0 {
			time.Sleep(10 * time.Millisecond)
		}
	}
	send(2000)
	for f.receivers() < len(crew) { // one was faster
		send(100)
	}
	for _, p := range crew {
		p.kill()
	}
	received := map[string]int{}
	for _, e := range f.events() {
		switch e.kind {
		case "received":
			received[e.id]++
		case "completing", "completed":
		default:
			t.Errorf("%s %s %s", e.kind, e.id, e.text)
		}
	}
	equal(t, "messages received", len(received), messages)
	for id, n := range received {
		if n != 1 {
			t.Errorf("message %s was received %d times", id, n)
		}
	}
}

// receivers returns how many processes have received a message.
func (f *fleet) receivers() int {
	pids := map[string]bool{}
	for _, e := range f.events() {
		if e.kind == "received" {
			pids[strings.Fields(e.text)[1]] = true
		}
	}
	return len(pids)
}

// fleet is processes that work on one directory and write down what they do.
type fleet struct {
	t          *testing.T
	dir, queue string
	job        job
}

// job is what a process is told to do.
type job struct {
	Role, Dir, Log, Holders string
	Lock                    time.Duration
}

const jobVariable = "FILETRANSPORT_TEST_JOB"

func newFleet(t *testing.T, lock time.Duration) *fleet {
	t.Helper()
	_, queue := opened(t, filetransport.Config{})
	dir := filepath.Dir(queue)
	beside := t.TempDir()
	f := &fleet{t, dir, queue, job{Dir: dir, Log: filepath.Join(beside, "log"), Holders: filepath.Join(beside, "holders"), Lock: lock}}
	settled(t, os.Mkdir(f.job.Holders, 0o700))
	return f
}

// process is one that can be killed.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	output *bufio.Reader
}

func (f *fleet) start(role string) *process {
	f.t.Helper()
	f.job.Role = role
	text, err := json.Marshal(f.job)
	settled(f.t, err)
	self, err := os.Executable()
	settled(f.t, err)
	p := &process{t: f.t, cmd: exec.Command(self, "-test.run=^TestProcess$")}
	p.cmd.Env = append(os.Environ(), jobVariable+"="+string(text))
	p.cmd.Stderr = os.Stderr
	output, err := p.cmd.StdoutPipe()
	settled(f.t, err)
	p.output = bufio.NewReader(output)
	_, err = p.cmd.StdinPipe() // ends with this process, and with it the child
	settled(f.t, err)
	settled(f.t, p.cmd.Start())
	f.t.Cleanup(p.kill)
	return p
}

// works waits until the process has done something.
func (p *process) works() {
	p.t.Helper()
	if line, err := p.output.ReadString('\n'); err != nil {
		p.t.Fatalf("process: %q, %v", line, err)
	}
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// event is a line of the log.
type event struct{ kind, id, text string }

func (f *fleet) log(format string, args ...any) { f.job.log(format, args...) }

func (f *fleet) events() (events []event) {
	f.t.Helper()
	content, err := os.ReadFile(f.job.Log)
	settled(f.t, err)
	for line := range strings.Lines(string(content)) {
		kind, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		id, text, _ := strings.Cut(text, " ")
		events = append(events, event{kind, id, text})
	}
	return events
}

// log appends a line. Lines of several processes do not mix.
func (j job) log(format string, args ...any) {
	file, err := os.OpenFile(j.Log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil {
		_, err = fmt.Fprintf(file, format+"\n", args...)
		file.Close()
	}
	if err != nil {
		panic(err)
	}
}

// TestProcess is what the processes run that other tests start. Otherwise there is nothing to test.
func TestProcess(*testing.T) {
	if job := os.Getenv(jobVariable); job != "" {
		os.Exit(child(job))
	}
}

// child is the main function of a process.
func child(text string) int {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the test has ended
	}()
	var j job
	err := json.Unmarshal([]byte(text), &j)
	var transport *filetransport.Transport
	if err == nil {
		transport, err = filetransport.New(filetransport.Config{Dir: j.Dir, LockDuration: j.Lock, PollInterval: 5 * time.Millisecond})
	}
	switch {
	case err != nil:
	case j.Role == "send":
		err = j.send(transport)
	default:
		err = j.receive(transport)
	}
	j.log("failed %v", err)
	return 1
}

// send sends until it is killed.
func (j job) send(transport *filetransport.Transport) error {
	for i := 0; ; i++ {
		id := fmt.Sprintf("%d-%d", os.Getpid(), i)
		out := core.Outgoing{ID: id, Queue: "orders", Body: []byte(id), Headers: core.HeadersFromMap(map[string]string{headers.MessageID: id})}
		if err := transport.Send(context.Background(), out); err != nil {
			return err
		}
		j.log("sent %s", id)
		fmt.Println("sent")
	}
}

// receive receives and settles until it is killed.
func (j job) receive(transport *filetransport.Transport) error {
	r, err := transport.OpenReceiver(context.Background(), core.ReceiverConfig{Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: 8})
	if err != nil {
		return err
	}
	failed := make(chan error)
	for range 3 {
		go func() {
			dst := make([]core.Delivery, 4)
			for {
				n, err := r.Receive(context.Background(), dst)
				if err != nil {
					failed <- err
				}
				for _, d := range dst[:n] {
					j.handle(d)
				}
				fmt.Println("settled")
			}
		}()
	}
	return <-failed
}

func (j job) handle(d core.Delivery) {
	in := d.Incoming()
	j.log("received %s %d %d", in.ID, in.DeliveryCount, os.Getpid())
	if in.Malformed != nil || in.ID != string(in.Body) {
		j.log("broken %s %q %v", in.ID, in.Body, in.Malformed)
	}
	note := j.hold(d)
	ctx := context.Background()
	chance := 0
	if j.Role == "settle" {
		chance = rand.IntN(10)
		time.Sleep(rand.N(2 * time.Millisecond))
		if rand.IntN(2) == 0 {
			if err := d.Renew(ctx); err == nil {
				renewed := j.hold(d)
				_ = os.Remove(note)
				note = renewed
			}
		}
	}
	_ = os.Remove(note) // from here on another one may hold it
	var err error
	switch {
	case chance < 8:
		j.log("completing %s", in.ID)
		if err = d.Complete(ctx); err == nil {
			j.log("completed %s", in.ID)
		}
	case chance < 9:
		err = d.Abandon(ctx, nil)
	default:
		err = d.Release(ctx)
	}
	if err != nil && time.Now().Before(d.LockedUntil()) {
		j.log("unsettled %s %v", in.ID, err)
	}
}

// hold notes until when this process holds a message, and that no other process does.
// The notes are one file each, so that those of a killed process are there to be
// compared with: its locks count.
func (j job) hold(d core.Delivery) (note string) {
	lockedUntil := d.LockedUntil()
	claimed := lockedUntil.Add(-j.Lock)
	note = filepath.Join(j.Holders, fmt.Sprintf("%s_%d_%d", d.Incoming().NativeID, lockedUntil.UnixNano(), os.Getpid()))
	if err := os.WriteFile(note, nil, 0o600); err != nil {
		panic(err)
	}
	others, err := filepath.Glob(filepath.Join(j.Holders, d.Incoming().NativeID+"_*"))
	if err != nil {
		panic(err)
	}
	for _, other := range others {
		part := strings.Split(filepath.Base(other), "_")
		nano, _ := strconv.ParseInt(part[1], 10, 64)
		if part[2] != strconv.Itoa(os.Getpid()) && claimed.Before(time.Unix(0, nano)) && time.Now().Before(time.Unix(0, nano)) {
			j.log("twice-held %s since %v until %v by %s", d.Incoming().ID, claimed, time.Unix(0, nano), part[2])
		}
	}
	return note
}
