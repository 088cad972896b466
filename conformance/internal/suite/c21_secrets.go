package suite

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

var secretCases = []testCase{
	// fmt also reads data that the values share with others, so these two are exclusive.
	{rule: "C21", title: "printing a transport shows no secret", modes: inHighest, exclusive: true, needs: []need{secrets}, run: func(t *caseT) {
		transport := t.open()
		t.printsNoSecret("an open transport", transport, false)
		t.close(transport)
		t.printsNoSecret("a transport", transport, true)
	}},
	{rule: "C21", title: "printing a receiver or a delivery shows no secret", exclusive: true, needs: []need{secrets}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "any"))
		r := t.receiver(transport, queue, 1)
		d := r.next()
		t.printsNoSecret("an open receiver", r.Receiver, false)
		t.printsNoSecret("a delivery", d, false)
		t.complete(d)
		r.close()
		t.close(transport)
		t.printsNoSecret("a receiver", r.Receiver, true)
		t.printsNoSecret("a delivery", d, true)
		t.showsNoSecret("a message's Native", fmt.Sprint(d.Incoming().Native))
	}},
	{rule: "C21", title: "an error about a queue that does not exist has no secret", modes: inHighest, needs: []need{secrets}, run: func(t *caseT) {
		transport := t.open()
		missing := t.uniqueName()
		ctx, cancel := t.withTimeout()
		defer cancel()
		t.tellsNoSecret("Send to a missing queue", transport.Send(ctx, t.message(missing, "lost")))
		_, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: missing, Mode: t.mode, MaxInFlight: 1})
		t.tellsNoSecret("OpenReceiver of a missing queue", err)
		if subscriber, ok := transport.(core.Subscriber); ok {
			t.tellsNoSecret("Subscribe of a missing queue", subscriber.Subscribe(ctx, missing, t.uniqueName()))
		}
		if checker, ok := transport.(core.Checker); ok {
			t.tellsNoSecret("Check of a missing queue", checker.Check(ctx, core.Topology{InputQueue: missing, Queues: []string{missing}}))
		}
	}},
	{rule: "C21", title: "an error about a refused message has no secret", modes: inHighest, needs: []need{secrets}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		ctx, cancel := t.withTimeout()
		defer cancel()
		for _, bad := range t.refusedMessages(queue) {
			t.tellsNoSecret("Send of a message that is refused", transport.Send(ctx, bad.message))
		}
		_, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: queue, Mode: -1, MaxInFlight: 1})
		t.tellsNoSecret("OpenReceiver in a mode that does not exist", err)
		_, err = transport.Address("")
		t.tellsNoSecret("Address of an empty name", err)
		if provisioner, ok := transport.(core.Provisioner); ok {
			t.tellsNoSecret("Provision of an empty name", provisioner.Provision(ctx, core.Topology{InputQueue: "", Queues: []string{""}}))
		}
	}},
	{rule: "C21", title: "an error about an ended context has no secret", modes: inHighest, needs: []need{secrets}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		r := t.receiver(transport, queue, 1)
		ended, cancel := context.WithCancel(t.ctx)
		cancel()
		t.tellsNoSecret("Send in an ended context", transport.Send(ended, t.message(queue, "late")))
		other, err := transport.OpenReceiver(ended, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: 1})
		t.tellsNoSecret("OpenReceiver in an ended context", err)
		if err == nil {
			_ = other.Close(t.ctx)
		}
		_, err = r.Receive(ended, make([]core.Delivery, 1))
		t.tellsNoSecret("Receive in an ended context", err)
		if provisioner, ok := transport.(core.Provisioner); ok {
			t.tellsNoSecret("Provision in an ended context", provisioner.Provision(ended, core.Topology{InputQueue: queue, Queues: []string{queue}}))
		}
		if checker, ok := transport.(core.Checker); ok {
			t.tellsNoSecret("Check in an ended context", checker.Check(ended, core.Topology{InputQueue: queue, Queues: []string{queue}}))
		}
	}},
	{rule: "C21", title: "an error about a closed transport or receiver has no secret", needs: []need{secrets}, run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.send(transport, t.message(queue, "any"))
		r := t.receiver(transport, queue, 1)
		d := r.next()
		r.close()
		ctx, cancel := t.withTimeout()
		defer cancel()
		t.tellsNoSecret("a settlement after Receiver.Close", d.Complete(ctx))
		_, err := r.Receive(ctx, make([]core.Delivery, 1))
		t.tellsNoSecret("Receive after Receiver.Close", err)
		t.close(transport)
		t.tellsNoSecret("Send after Transport.Close", transport.Send(ctx, t.message(queue, "late")))
		_, err = transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: 1})
		t.tellsNoSecret("OpenReceiver after Transport.Close", err)
		t.tellsNoSecret("Transport.Close again", transport.Close(ctx))
	}},
	{rule: "C21", title: "an error about a transport that cannot be opened has no secret", modes: inHighest, exclusive: true, needs: []need{secrets, outages}, run: func(t *caseT) {
		t.open() // a queue or a database may have to exist
		broker := t.brokerController()
		broker.kill()
		heard := &logRecorder{caseT: t}
		opened := make(chan struct{})
		t.goGuarded(func() {
			defer close(opened)
			transport := t.suite.h.Open(heard)
			if transport == nil {
				return
			}
			ctx, cancel := t.withTimeout()
			defer cancel()
			t.tellsNoSecret("Transport.Close in an outage", transport.Close(ctx))
		})
		if !t.returnsInTime(func() { <-opened }) { // Open may wait for the broker
			broker.start()
			<-opened
		}
		t.showsNoSecret("the error of an Open that fails", heard.text())
	}},
	{rule: "C21", title: "an error about a wrong configuration has no secret", modes: inHighest, needs: []need{secrets, misconfiguration}, run: func(t *caseT) {
		failures := t.suite.h.OpenWrong(t)
		if len(failures) == 0 {
			t.stop("Harness.OpenWrong returns the errors of configurations with which no transport can be opened", "it returned none")
		}
		for i, err := range failures {
			if err == nil {
				t.fail("a transport cannot be opened with a wrong configuration", "element %d of the result of Harness.OpenWrong is nil", i)
			}
			t.tellsNoSecret("an Open with a wrong configuration", err)
		}
	}},
	{rule: "C21", title: "a secret in the wrong field of a configuration is not shown", modes: inHighest, needs: []need{secrets, misplacement}, run: func(t *caseT) {
		for shape, text := range misplacedSecrets(t.suite.h.Secrets[0]) {
			configs, failures := t.suite.h.OpenMisplaced(t, text)
			if len(configs) == 0 {
				t.stop("Harness.OpenMisplaced returns the configurations that it has opened", "it returned none")
			}
			for _, config := range configs {
				t.printsNoSecret("a configuration with "+shape, config, true)
				t.logsNoSecret("a configuration with "+shape, config)
			}
			for _, err := range failures {
				t.tellsNoSecret("an Open with "+shape, err)
			}
		}
	}},
	{rule: "C21", title: "errors, notifications and log lines in an outage have no secret", modes: inHighest, exclusive: true, needs: []need{secrets, outages}, run: secretsInOutage},
}

// misplacedSecrets returns texts with a secret that belong in one field of a configuration, and
// get into another one, by their descriptions. No server listens at their address.
func misplacedSecrets(secret string) map[string]string {
	const connection = "Endpoint=sb://127.0.0.1:1/;SharedAccessKeyName=any;SharedAccessKey="
	return map[string]string{
		"a connection string":                     connection + secret,
		"a connection string of one queue":        connection + secret + ";EntityPath=any",
		"a connection string with a key as queue": connection + "any;EntityPath=" + secret,
		"a list of options":                       "host=127.0.0.1 port=1 user=any password=" + secret,
		"a password in a URL":                     "amqp://any:" + secret + "@127.0.0.1:1/any",
		"a password before an address":            "any:" + secret + "@127.0.0.1:1",
		"a signature in a URL":                    "https://127.0.0.1:1/any?sv=2024&sig=" + secret,
		"a signature in an endpoint without path": "http://127.0.0.1:1?sig=" + secret,
		"a key at the end of a URL":               "https://127.0.0.1:1/;SharedAccessKey=" + secret,
	}
}

// logsNoSecret checks the forms of a value in encoding/json and log/slog.
func (t *caseT) logsNoSecret(subject string, value any) {
	text, err := json.Marshal(map[string]any{"key": value})
	t.tellsNoSecret("encoding/json of "+subject, err)
	t.showsNoSecret("encoding/json of "+subject, string(text))
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("text", "key", value)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("text", "key", value)
	t.showsNoSecret("log/slog of "+subject, log.String())
}

// logRecorder is a testing.TB for Harness.Open that only records failures: Open is
// expected to fail. Its other methods are the case's.
type logRecorder struct {
	*caseT
	mu    sync.Mutex
	texts strings.Builder
}

func (l *logRecorder) record(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(&l.texts, text)
}

func (l *logRecorder) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.texts.String()
}

func (l *logRecorder) Log(args ...any) { l.record(fmt.Sprintln(args...)) }

func (l *logRecorder) Logf(format string, args ...any) { l.record(fmt.Sprintf(format, args...)) }

func (l *logRecorder) Error(args ...any) { l.record(fmt.Sprintln(args...)) }

func (l *logRecorder) Errorf(format string, args ...any) { l.record(fmt.Sprintf(format, args...)) }

func (l *logRecorder) Fail() {}

func (l *logRecorder) FailNow() { runtime.Goexit() }

func (l *logRecorder) Failed() bool { return l.text() != "" }

func (l *logRecorder) Fatal(args ...any) {
	l.Error(args...)
	runtime.Goexit()
}

func (l *logRecorder) Fatalf(format string, args ...any) {
	l.Errorf(format, args...)
	runtime.Goexit()
}

// secretsInOutage checks errors and log records during an outage.
func secretsInOutage(t *caseT) {
	transport := t.open()
	queue := t.queue(transport)
	ctx, cancel := t.withTimeout()
	defer cancel()
	heard := &connectionLog{}
	r, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: 1, ConnectionChanged: heard.ConnectionChanged})
	if err != nil {
		t.stop("OpenReceiver opens a receiver", "%v", err)
	}
	broker := t.brokerController()
	broker.kill()
	short, cancelShort := context.WithTimeout(ctx, 10*t.quietPeriod())
	_, err = r.Receive(short, make([]core.Delivery, 1))
	t.tellsNoSecret("Receive in an outage", err)
	t.tellsNoSecret("Send in an outage", transport.Send(short, t.message(queue, "lost")))
	_, err = transport.OpenReceiver(short, core.ReceiverConfig{Queue: queue, Mode: t.mode, MaxInFlight: 1})
	t.tellsNoSecret("OpenReceiver in an outage", err)
	if checker, ok := transport.(core.Checker); ok {
		t.tellsNoSecret("Check in an outage", checker.Check(short, core.Topology{InputQueue: queue, Queues: []string{queue}}))
	}
	cancelShort()
	broker.start()
	t.tellsNoSecret("Receiver.Close after an outage", r.Close(ctx))
	t.tellsNoSecret("Transport.Close after an outage", transport.Close(ctx))
	for _, change := range heard.all() {
		t.tellsNoSecret("the error that ReceiverConfig.ConnectionChanged gets", change.Err)
	}
}

// tellsNoSecret checks an error, and all errors that it wraps.
func (t *caseT) tellsNoSecret(subject string, err error) {
	if err == nil {
		return
	}
	subject = "the error of " + subject
	t.showsNoSecret(subject, fmt.Sprintf("%v\n%+v", err, err))
	if sent, ok := err.(*core.SendError); ok { //nolint:errorlint // the wrapped errors are checked next
		for _, r := range sent.Results {
			t.showsNoSecret(subject, r.To)
		}
	}
	switch wrapping := err.(type) { //nolint:errorlint // this walks the tree itself
	case interface{ Unwrap() error }:
		t.tellsNoSecret(subject, wrapping.Unwrap())
	case interface{ Unwrap() []error }:
		for _, e := range wrapping.Unwrap() {
			t.tellsNoSecret(subject, e)
		}
	}
}

// printsNoSecret prints a value in every way. For a type without its own method, fmt
// reads all fields, and with %s also the values that they point to. That is safe only if
// the value is not in use any more: alone is then true.
func (t *caseT) printsNoSecret(subject string, value any, alone bool) {
	_, _ = time.Now().Zone() // loads the local time zone, which every time points to, before fmt reads it
	for _, verb := range []string{"%v", "%+v", "%s", "%#v"} {
		var prints bool
		switch value.(type) {
		case fmt.Formatter:
			prints = true
		case fmt.GoStringer:
			prints = verb == "%#v"
		}
		if _, ok := value.(fmt.Stringer); ok {
			prints = prints || verb != "%#v"
		}
		if alone || prints {
			t.showsNoSecret(fmt.Sprintf("fmt's %s of %s", verb, subject), fmt.Sprintf(verb, value))
		}
	}
}

func (t *caseT) showsNoSecret(where, text string) {
	for i, secret := range t.suite.h.Secrets {
		if secret == "" {
			t.stop("no element of Harness.Secrets is empty", "number %d is empty", i)
		}
		inJSON, _ := json.Marshal(secret) // a text has no error
		for _, form := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret), strings.Trim(string(inJSON), `"`)} {
			if strings.Contains(text, form) {
				// Reports end up in logs, so the secret itself is not shown.
				t.fail("no password, key or token is in "+where, "number %d of Harness.Secrets is: %s", i, strings.ReplaceAll(text, form, "<secret>"))
				break
			}
		}
	}
}
