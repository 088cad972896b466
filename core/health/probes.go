package health

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Config says how the probes answer. The zero value is ready for use.
type Config struct {
	// AttemptLimit is how long an attempt may take before the liveness probe answers "no",
	// because a handler hangs (core.Health.OldestAttempt). The default, 0, is without limit.
	// Choose more than the longest time that a handler may need when its database is slow: a
	// restart interrupts all other handlers too. core.Config.HandlerTimeout ends one attempt,
	// if its handler heeds its context.
	AttemptLimit time.Duration

	// ReadyWithoutBroker lets the readiness probe answer "yes" while an endpoint waits at its
	// start for a broker that cannot be reached (core.Config.WaitForBroker). It is for a
	// process whose other work, such as answering requests, does not need that broker. By
	// default the answer is "no", which stops the deployment of a version whose broker has a
	// wrong address.
	ReadyWithoutBroker bool

	// ErrorTexts adds the texts of errors to the answers: core.Health's ConnectionError,
	// SendError, RunError and LastCritical. They come from clients, adapters and the
	// application, and may tell of hosts, users and data; adapters of Reprise keep
	// passwords out of them. By default an answer says that there is an error and since
	// when, and the log has its text.
	ErrorTexts bool
}

// Probes makes the handlers of one or several endpoints. All of them are safe for
// concurrent use; each request asks every endpoint for its Health, which waits for no
// broker.
type Probes struct {
	config    Config
	endpoints []*core.Endpoint
}

// New returns the probes of endpoints. Different endpoints can decide each probe: make
// several Probes, for example one for the readiness of those that requests depend on.
func New(c Config, endpoints ...*core.Endpoint) (*Probes, error) {
	switch i := slices.Index(endpoints, nil); {
	case len(endpoints) == 0:
		return nil, errors.New("health: new probes: no endpoint was given")
	case i >= 0:
		return nil, fmt.Errorf("health: new probes: endpoint %d of %d is nil; look at the error of its New", i+1, len(endpoints))
	case c.AttemptLimit < 0:
		return nil, fmt.Errorf("health: new probes: Config.AttemptLimit is %v; it cannot be negative (0 is without limit)", c.AttemptLimit)
	}
	return &Probes{config: c, endpoints: slices.Clone(endpoints)}, nil
}

// Liveness returns the handler that asks for a restart of the process: when a Run has ended
// with an error, because the process does not receive any more, and while an attempt takes
// longer than Config.AttemptLimit. A Run that ended because it was asked to, and an endpoint
// whose Run was never called, are no reason.
func (p *Probes) Liveness() http.Handler { return p.handler("liveness", p.restarts) }

// Readiness returns the handler that takes the process out of rotation while an endpoint
// does not receive: before Run is called, while it starts (see Config.ReadyWithoutBroker)
// or drains, and after Run has returned. A paused or parked endpoint, and one whose broker
// is away while it runs, is ready: the process can do its other work, and no other instance
// is better off.
func (p *Probes) Readiness() http.Handler { return p.handler("readiness", p.rests) }

// Startup returns the handler that holds the other two probes back until Run was called for
// each endpoint. One that waits for its broker has started: the platform restarts a process
// whose startup probe fails for long, and an outage of a broker takes as long as it does.
// It answers "no" as well after Run has returned.
func (p *Probes) Startup() http.Handler { return p.handler("startup", startsUp) }

// restarts returns why the process should be restarted, or "".
func (p *Probes) restarts(h *core.Health) string {
	switch {
	case h.RunError != nil:
		return "Run ended with an error"
	case p.config.AttemptLimit > 0 && h.OldestAttempt > p.config.AttemptLimit:
		return fmt.Sprintf("an attempt has been running for %v, longer than %v", h.OldestAttempt.Round(time.Millisecond), p.config.AttemptLimit)
	}
	return ""
}

// rests returns why the process should get no requests, or "".
func (p *Probes) rests(h *core.Health) string {
	waits := h.Starting && h.ConnectionError != nil
	switch {
	case h.Running, waits && p.config.ReadyWithoutBroker:
		return ""
	case waits:
		return "it waits for its broker or its ParkStore, which cannot be reached"
	case h.Starting:
		return "it is starting"
	case h.Draining:
		return "it is draining"
	}
	return endedOrNot(h)
}

// startsUp returns why the other probes should wait, or "".
func startsUp(h *core.Health) string {
	if h.Starting || h.Running || h.Draining {
		return ""
	}
	return endedOrNot(h)
}

func endedOrNot(h *core.Health) string {
	if h.RunError != nil {
		return "Run ended with an error"
	}
	return "Run was not called yet, or has returned"
}
