package probes

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core/health"
)

// Config configures the answers of the probes. The zero value is ready for use.
type Config struct {
	// AttemptLimit is the duration of an attempt after which the liveness probe answers
	// "no", because a handler hangs ([health.State.OldestAttempt]). The default, 0, means no
	// limit. Choose more than the longest time that a handler may need when its database is
	// slow: a restart interrupts all other handlers too. Config.HandlerTimeout of core ends
	// one attempt, if its handler heeds its context.
	AttemptLimit time.Duration

	// ReadyWithoutBroker lets the readiness probe answer "yes" while an endpoint waits at
	// its start for a broker that cannot be reached. It is for
	// a process whose other work, such as answering requests, does not need that broker. By
	// default the answer is "no", which stops the deployment of a version whose broker has a
	// wrong address.
	ReadyWithoutBroker bool

	// ErrorTexts adds the texts of errors to the answers: [health.State]'s ConnectionError,
	// SendError, RunError and LastCritical. They come from clients, adapters and the
	// application, and may contain hosts, users and data; adapters of Reprise keep passwords
	// out of them. By default an answer says that there is an error and since when, and the
	// log has its text.
	ErrorTexts bool
}

// Probes makes the handlers of one or several endpoints. All of them are safe for
// concurrent use; each request calls Health of every endpoint, which does not wait for a
// broker.
type Probes struct {
	config    Config
	endpoints []Source
}

// Source is an endpoint: *core.Endpoint implements it.
type Source interface {
	Health() health.State
}

// New returns the probes of endpoints. To base the probes on different endpoints make
// several [Probes], for example one for the readiness of the endpoints that requests
// depend on.
func New[E Source](c Config, endpoints ...E) (*Probes, error) {
	switch i := slices.IndexFunc(endpoints, isNil); {
	case len(endpoints) == 0:
		return nil, errors.New("probes: new: no endpoint was given")
	case i >= 0:
		return nil, fmt.Errorf("probes: new: endpoint %d of %d is nil; look at the error of its New", i+1, len(endpoints))
	case c.AttemptLimit < 0:
		return nil, fmt.Errorf("probes: new: Config.AttemptLimit is %v; it cannot be negative (0 is without limit)", c.AttemptLimit)
	}
	p := &Probes{config: c}
	for _, each := range endpoints {
		p.endpoints = append(p.endpoints, each)
	}
	return p, nil
}

// isNil reports whether a source is nil, or a nil pointer.
func isNil[E Source](each E) bool {
	v := reflect.ValueOf(each)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// Liveness returns the handler that asks for a restart of the process: once a Run ends
// with an error, because the process does not receive any more, and while an attempt
// takes longer than [Config.AttemptLimit]. A Run that ended without an error, and
// an endpoint whose Run was never called, do not cause a "no".
func (p *Probes) Liveness() http.Handler { return p.handler("liveness", p.whyNotAlive) }

// Readiness returns the handler that takes the process out of rotation while an endpoint
// does not receive: before Run is called, while it starts (see
// [Config.ReadyWithoutBroker]) or drains, and after Run has returned. A paused endpoint
// is ready, and so is a running endpoint whose broker cannot be reached: the process can
// do its other work, and other instances have the same outage.
func (p *Probes) Readiness() http.Handler { return p.handler("readiness", p.whyNotReady) }

// Startup returns the handler that delays the other two probes until Run was called for
// each endpoint. An endpoint that waits for its broker has started: the platform restarts
// a process whose startup probe fails for long, and an outage of a broker may be longer.
// It also answers "no" after Run has returned.
func (p *Probes) Startup() http.Handler { return p.handler("startup", whyNotStarted) }

// whyNotAlive returns the reason why the process should be restarted, or "".
func (p *Probes) whyNotAlive(h *health.State) string {
	switch {
	case h.RunError != nil && h.Draining:
		return "Run is ending with an error"
	case h.RunError != nil:
		return "Run ended with an error"
	case p.config.AttemptLimit > 0 && h.OldestAttempt > p.config.AttemptLimit:
		return fmt.Sprintf("an attempt has been running for %v, longer than %v", h.OldestAttempt.Round(time.Millisecond), p.config.AttemptLimit)
	}
	return ""
}

// whyNotReady returns the reason why the process should get no requests, or "".
func (p *Probes) whyNotReady(h *health.State) string {
	waits := h.Starting && h.ConnectionError != nil
	switch {
	case h.Running, waits && p.config.ReadyWithoutBroker:
		return ""
	case waits:
		return "it waits for its broker, which cannot be reached"
	case h.Starting:
		return "it is starting"
	case h.Draining:
		return "it is draining"
	}
	return whyNotRunning(h)
}

// whyNotStarted returns the reason why the other probes should wait, or "".
func whyNotStarted(h *health.State) string {
	if h.Starting || h.Running || h.Draining {
		return ""
	}
	return whyNotRunning(h)
}

func whyNotRunning(h *health.State) string {
	if h.RunError != nil {
		return "Run ended with an error"
	}
	return "Run was not called yet, or has returned"
}
