//go:build darwin || linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/fauxqs"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/internal/testserver/process"
	"github.com/reprise-go/reprise/internal/testserver/rabbitmq"
)

// database and broker are for all tests; each has a database and a virtual host.
var (
	database *postgres.Server
	broker   *rabbitmq.Server
)

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		os.Exit(m.Run())
	}
	os.Exit(withServers(m.Run))
}

func withServers(tests func() int) (code int) {
	var queues *fauxqs.Server
	var errs [3]error
	var starts sync.WaitGroup
	starts.Go(func() { database, errs[0] = postgres.Start(postgres.Config{}) })
	starts.Go(func() { broker, errs[1] = rabbitmq.Start(rabbitmq.Config{Release: rabbitmq.V4}) })
	starts.Go(func() { queues, errs[2] = fauxqs.Start() })
	starts.Wait()
	err := errors.Join(errs[:]...)
	if err == nil {
		err = errors.Join( // for the SDK and boto3, which does not read this region
			os.Setenv("AWS_ENDPOINT_URL", queues.URL()), os.Setenv("AWS_REGION", "eu-central-1"),
			os.Setenv("AWS_ACCESS_KEY_ID", "test"), os.Setenv("AWS_SECRET_ACCESS_KEY", "test"),
			os.Setenv("AWS_CONFIG_FILE", os.DevNull), os.Unsetenv("AWS_DEFAULT_REGION"), os.Unsetenv("AWS_PROFILE"))
	}
	if err == nil {
		code = tests()
	}
	if database != nil {
		err = errors.Join(err, database.Stop())
	}
	if broker != nil {
		err = errors.Join(err, broker.Stop())
	}
	if queues != nil {
		err = errors.Join(err, queues.Stop())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// patience is for what never happens; the speed of the machine is not tested.
const patience = 5 * time.Minute

// notInShortRuns leaves a test out of short runs.
func notInShortRuns(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs programs in Python, JavaScript and Java: not in short runs")
	}
	t.Parallel()
}

// A service is billing, running.
type service struct {
	output
	endpoint *core.Endpoint
	stop     func()
}

// startBilling runs billing until the end of the test, or stop.
func startBilling(t *testing.T, o options) *service {
	t.Helper()
	o.logger = slog.New(slog.DiscardHandler)
	s := &service{output: newOutput()}
	transport, err := open(o)
	if err != nil {
		t.Fatal(err)
	}
	if s.endpoint, err = newBilling(transport, &s.output, o); err != nil {
		t.Fatal(err)
	}
	if err := s.endpoint.Provision(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.endpoint.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := errors.Join(<-ended, transport.Close(context.Background())); err != nil {
			t.Error(err)
		}
		close(s.ended)
	})
	t.Cleanup(s.stop)
	return s
}

// provision creates the queue of another program.
func provision(t *testing.T, o options, queue string) {
	t.Helper()
	transport, err := open(o)
	if err != nil {
		t.Fatal(err)
	}
	ep, err := core.New(queue, transport, core.Config{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = errors.Join(ep.Provision(t.Context()), transport.Close(context.Background()))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// handled returns the next attempt, which must be a success.
func (s *service) handled(t *testing.T, want object) object {
	t.Helper()
	got := s.next(t)
	expect(t, "handled", got, want, object{"error": nil})
	return got
}

// fails waits for the four attempts of a message that fails, and returns the last one.
func (s *service) fails(t *testing.T, want object) (last object) {
	t.Helper()
	for attempt := range 4 {
		last = s.next(t)
		expect(t, fmt.Sprintf("attempt %d", attempt+1), last, want, object{"error": `the customer "bob" is unknown`})
	}
	expect(t, "the last attempt", last, object{"delayedRetries": 1})
	return last
}

// A client is a program in another language.
type client struct {
	command []string // before the arguments
	env     []string
	lock    string // the file that pins its libraries
}

var (
	pika    = python("rabbitmq.py")
	psycopg = python("postgresql.py")
	boto3   = python("queues.py")
	celery  = python("tasks.py")
	amqplib = client{
		command: []string{"node", "node/rabbitmq.js"},
		env:     []string{"NODE_PATH=" + installed("node", "node_modules")},
		lock:    "node/package-lock.json",
	}
	spring = client{
		command: []string{"java", "-cp", installed("java", "lib", "*"), "java/Shop.java"},
		lock:    "java/pom.xml",
	}
)

func python(file string) client {
	return client{
		command: []string{"python3", "python/" + file},
		env:     []string{"PYTHONPATH=" + installed("python", "lib") + ":python", "PYTHONDONTWRITEBYTECODE=1"},
		lock:    "python/requirements.txt",
	}
}

// with returns the client with further variables of the environment.
func (c client) with(env ...string) client {
	c.env = slices.Concat(c.env, env)
	return c
}

// installed returns a path in the directory in which scripts/foreign installs libraries.
func installed(path ...string) string {
	cache := os.Getenv("XDG_CACHE_HOME") // also on macOS, as in scripts/foreign
	if cache == "" {
		cache = filepath.Join(os.Getenv("HOME"), ".cache")
	}
	return filepath.Join(append([]string{cache, "reprise", "foreign"}, path...)...)
}

// A program is a client that runs.
type program struct {
	output
	process *process.Process
}

// start starts the client, and kills it at the end of the test.
func (c client) start(t *testing.T, args ...string) *program {
	t.Helper()
	want, err := os.ReadFile(c.lock)
	if err != nil {
		t.Fatal(err)
	}
	lock := installed(filepath.FromSlash(c.lock))
	if got, err := os.ReadFile(lock); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("the libraries of %s are not installed: %s differs from it (%v); to fix: run scripts/foreign", c.lock, lock, err)
	}
	cmd := exec.Command(c.command[0], slices.Concat(c.command[1:], args)...)
	cmd.Env = append(os.Environ(), c.env...)
	p := &program{output: newOutput()}
	if p.process, err = process.Start(cmd, &p.output, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.process.Kill(); err != nil {
			t.Error(err)
		}
	})
	go func() {
		<-p.process.Exited()
		close(p.ended)
	}()
	return p
}

// run runs the client to its end and returns the lines that it printed.
func (c client) run(t *testing.T, args ...string) []object {
	t.Helper()
	p := c.start(t, args...)
	select {
	case <-p.ended:
	case <-time.After(patience):
		t.Fatalf("%v %v does not end: %s", c.command, args, p.text())
	}
	if err := p.process.Wait(); err != nil {
		t.Fatalf("%v %v: %v\n%s", c.command, args, err, p.text())
	}
	return p.objects
}

// prints is run for a program that prints one line.
func (c client) prints(t *testing.T, args ...string) object {
	t.Helper()
	lines := c.run(t, args...)
	if len(lines) != 1 {
		t.Fatalf("%v %v printed %d lines, want one: %v", c.command, args, len(lines), lines)
	}
	return lines[0]
}

// listen starts the client and waits until it listens.
func (c client) listen(t *testing.T, args ...string) *program {
	t.Helper()
	p := c.start(t, args...)
	p.await(t, `"listening"`)
	return p
}

// An object is a line of JSON.
type object map[string]any

// at returns the value at a path such as properties/headers/task, or nil.
func (o object) at(path string) any {
	var value any = map[string]any(o)
	for name := range strings.SplitSeq(path, "/") {
		within, _ := value.(map[string]any)
		value = within[name]
	}
	return value
}

// expect compares the values at some paths; nil stands for no value.
func expect(t *testing.T, subject string, got object, wants ...object) {
	t.Helper()
	for _, want := range wants {
		for path, value := range want {
			if is := got.at(path); !reflect.DeepEqual(is, plain(t, value)) {
				t.Errorf("%s: %s is %v (%T), want %v", subject, path, is, is, value)
			}
		}
	}
}

// expectError compares the beginning of an attempt's error.
func expectError(t *testing.T, attempt object, want string) {
	t.Helper()
	if got, _ := attempt["error"].(string); !strings.HasPrefix(got, want) {
		t.Errorf("the error is %q, want %q", got, want)
	}
}

// plain returns a value as JSON has it.
func plain(t *testing.T, value any) (as any) {
	t.Helper()
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &as)
	}
	if err != nil {
		t.Fatal(err)
	}
	return as
}

// output collects lines: those of JSON, and the rest.
type output struct {
	ended chan struct{} // closed after the last line

	mu      sync.Mutex
	partial []byte
	objects []object
	rest    bytes.Buffer
	read    int
	more    chan struct{}
}

func newOutput() output { return output{ended: make(chan struct{}), more: make(chan struct{}, 1)} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.partial = append(o.partial, p...)
	for {
		line, after, ok := bytes.Cut(o.partial, []byte("\n"))
		if !ok {
			break
		}
		var parsed object
		if json.Unmarshal(line, &parsed) == nil {
			o.objects = append(o.objects, parsed)
		} else {
			fmt.Fprintf(&o.rest, "%s\n", line)
		}
		o.partial = after
	}
	select {
	case o.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

// wait returns when is, which is called with mu held, returns true.
func (o *output) wait(t *testing.T, subject string, is func() bool) {
	t.Helper()
	never := time.After(patience)
	for ended := false; ; {
		o.mu.Lock()
		ok := is()
		o.mu.Unlock()
		switch {
		case ok:
			return
		case ended:
			t.Fatalf("it has ended without %s: %s", subject, o.text())
		}
		select {
		case <-o.more:
		case <-o.ended:
			ended = true
		case <-never:
			t.Fatalf("no %s: %s", subject, o.text())
		}
	}
}

// next returns the next line of JSON.
func (o *output) next(t *testing.T) (line object) {
	t.Helper()
	o.wait(t, "a line of JSON", func() bool {
		if o.read == len(o.objects) {
			return false
		}
		line = o.objects[o.read]
		o.read++
		return true
	})
	return line
}

// await waits for another line.
func (o *output) await(t *testing.T, text string) {
	t.Helper()
	o.wait(t, text, func() bool { return strings.Contains(o.rest.String(), text) })
}

// text returns all lines but those of JSON.
func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rest.String()
}
