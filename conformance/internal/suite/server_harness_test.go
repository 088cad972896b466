package suite

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// harnessOnServer returns a harness for the changes over transports that are
// connected to a server of the configuration, with everything that a harness can
// have. It claims Durable.
func harnessOnServer(cfg inmemory.Config, c changes) Harness {
	s := newServer(cfg)
	open := func() *brokenTransport {
		return &brokenTransport{
			base: s.open(), changes: &c, memory: map[string]int{},
			login: func() string { return password },
			leave: func() {},
		}
	}
	h := Harness{
		Synctest: true,
		Open:     func(testing.TB) core.Transport { return open() },
		Broker:   s,
		process:  s.process(open),
		OpenOnLine: func(testing.TB) (core.Transport, Line) {
			transport := open()
			return transport, line{transport.base.(*remote)}
		},
	}
	s.fixture.equip(&h)
	h.Connections = func(testing.TB) int { return s.count() }
	return h
}

// line implements Line.
type line struct{ transport *remote }

func (l line) Silence() { l.silence(requests, answers) }

func (l line) SilenceBroker() { l.silence(answers) }

func (l line) silence(kinds ...int) {
	if c, err := l.transport.connected(); err == nil {
		c.silence(kinds...)
	}
}

// process is Harness.process: one in goroutines, whose plug is pulled.
func (s *server) process(open func() *brokenTransport) func(t *caseT, spec workerSpec) process {
	return func(_ *caseT, spec workerSpec) process {
		transport := open()
		p := &localProcess{eventQueue: newEventQueue(), remote: transport.base.(*remote), gone: make(chan struct{}), done: make(chan struct{})}
		p.asked = make(chan struct{})
		go p.run(spec, transport)
		return p
	}
}

type localProcess struct {
	*eventQueue
	remote *remote
	asked  chan struct{} // closed by stop
	gone   chan struct{} // closed by crash
	done   chan struct{} // closed when the worker has ended
	once   sync.Once
	err    error
}

func (p *localProcess) run(spec workerSpec, transport core.Transport) {
	ctx, cancel := contextUntil(p.asked, p.gone)
	defer cancel()
	p.err = spec.run(ctx, transport, workerEnv{
		report: func(e event) {
			select {
			case <-p.gone:
			default:
				p.push(e)
			}
		},
		crash: p.crash,
		ended: p.gone,
	})
	if err := transport.Close(ctxBackground); p.err == nil {
		p.err = err
	}
	p.close()
	close(p.done)
}

func (p *localProcess) crash() {
	p.once.Do(func() {
		close(p.gone)
		p.remote.die()
	})
}

func (p *localProcess) kill() {
	p.crash()
	<-p.done
}

func (p *localProcess) stop(limit time.Duration) error {
	close(p.asked)
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return p.err
	case <-timer.C:
		return errors.New("it has not ended")
	}
}

func (p *localProcess) exitReport() string {
	<-p.done
	select {
	case <-p.gone:
		return "it has crashed"
	default:
		return errorText(p.err)
	}
}
