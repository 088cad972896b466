package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

const (
	orders    = 720 // one per second, for twelve minutes
	notes     = 72  // one every ten seconds
	outageAt  = 1   // minutes
	outageFor = 10  // minutes
)

var (
	charged = core.NewMessageType[order]("orders.charge")
	noted   = core.NewMessageType[note]("orders.note")
)

// api is the payment service: an HTTP API without a network, so that it can also run in virtual
// time. It answers within 0.2 s, during the outage with 503.
type api struct {
	clock clock
	began time.Time

	mu    sync.Mutex
	calls []time.Duration // the times of the calls, counted from began
}

// RoundTrip implements http.RoundTripper.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	at := time.Since(a.began)
	a.mu.Lock()
	a.calls = append(a.calls, at)
	a.mu.Unlock()
	select {
	case <-time.After(a.clock.seconds(0.2)):
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
	status := http.StatusOK
	if a.isOut(at) {
		status = http.StatusServiceUnavailable
	}
	return &http.Response{StatusCode: status, Request: r, Body: io.NopCloser(strings.NewReader(""))}, nil
}

func (a *api) isOut(at time.Duration) bool {
	return at >= a.clock.minutes(outageAt) && at < a.clock.minutes(outageAt+outageFor)
}

// order is a command to charge an order. A note is another message of the endpoint, which does
// not need the API.
type (
	order struct{ Number int }
	note  struct{ At time.Time }
)

// shop is the endpoint's handler, and counts the outcomes of the orders.
type shop struct {
	client *http.Client

	mu      sync.Mutex
	charged map[int]time.Time // by order
	noted   int
	failed  int           // orders in the error queue
	retries int           // deferrals and delayed retries
	longest time.Duration // the longest wait of a note
	tries   map[int]int   // by order
	done    chan struct{}
}

// snippet: handler
func (s *shop) charge(ctx context.Context, _ *core.Message, body order) error {
	s.update(func() { s.tries[body.Number]++ })
	url := "http://payments.example/orders/" + strconv.Itoa(body.Number)
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, url, http.NoBody)
	if err != nil {
		return err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return fmt.Errorf("charge order %d: %w", body.Number, err)
	}
	defer func() { _ = response.Body.Close() }()
	switch response.StatusCode {
	case http.StatusOK:
		s.update(func() { s.charged[body.Number] = time.Now() })
		return nil
	case http.StatusServiceUnavailable:
		return fmt.Errorf("charge order %d: %w", body.Number, errUnavailable)
	default:
		return core.GiveUp(fmt.Errorf("charge order %d: %s", body.Number, response.Status))
	}
}

// end

// note handles a message that does not need the API.
func (s *shop) note(_ context.Context, _ *core.Message, body note) error {
	s.update(func() {
		s.noted++
		s.longest = max(s.longest, time.Since(body.At))
	})
	return nil
}

// update changes the counts, and detects the end.
func (s *shop) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	if len(s.charged)+s.failed == orders && s.noted == notes {
		close(s.done)
	}
}

// recovered counts the decisions about failed messages.
func (s *shop) recovered(_ context.Context, e core.Recovery) {
	switch e.Action.Kind {
	case core.ActionDelayedRetry, core.ActionDefer, core.ActionRefuse:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.retries++
	case core.ActionMoveToError:
		s.update(func() { s.failed++ })
	}
}

// result is the cost of the outage.
type result struct {
	calls      int     // of the API during its outage
	maxCalls   int     // of them in one second
	maxTries   int     // of one order
	retries    int     // deliveries after a delay
	failed     int     // orders in the error queue
	recoveryIn float64 // seconds from the end of the outage until all orders from before it were charged
	longest    float64 // seconds that another message waited for its handler
}

// run runs the outage with one way.
func run(ctx context.Context, w way, c clock, logger *slog.Logger) (r result, err error) {
	config, err := w.config(c, logger)
	if err != nil {
		return r, err
	}
	payments := &api{clock: c, began: time.Now()}
	s := &shop{client: &http.Client{Transport: payments}, charged: map[int]time.Time{}, tries: map[int]int{}, done: make(chan struct{})}
	config.Logger, config.Observers = logger, []core.Observer{{Recovered: s.recovered}}
	config.Transactions = core.TransactionReceiveOnly

	transport := inmemory.Open()
	defer func() {
		if closeErr := transport.Close(context.WithoutCancel(ctx)); err == nil {
			err = closeErr
		}
	}()
	ep, err := core.New("shop", transport, config)
	if err != nil {
		return r, err
	}
	core.Handle(ep, charged, s.charge)
	core.Handle(ep, noted, s.note)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	select {
	case <-ep.Ready():
	case err := <-ended:
		return r, err
	}

	if err := s.place(ctx, ep, payments.began, c); err != nil {
		stop()
		return r, errors.Join(err, <-ended)
	}
	select {
	case <-s.done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	stop()
	return s.result(payments), errors.Join(err, <-ended)
}

// place sends an order each second.
func (s *shop) place(ctx context.Context, ep *core.Endpoint, began time.Time, c clock) error {
	for i := range orders {
		select {
		case <-time.After(time.Until(began.Add(c.seconds(float64(i))))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		err := ep.Send(ctx, ep.Name(), charged.Of(order{i}))
		if i%(orders/notes) == 0 {
			err = errors.Join(err, ep.Send(ctx, ep.Name(), noted.Of(note{time.Now()})))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// result computes the result.
func (s *shop) result(a *api) result {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := result{retries: s.retries, failed: s.failed}
	inSecond := map[int]int{}
	for _, at := range a.calls {
		if a.isOut(at) {
			r.calls++
			second := int(at / a.clock.seconds(1))
			inSecond[second]++
			r.maxCalls = max(r.maxCalls, inSecond[second])
		}
	}
	for _, tries := range s.tries {
		r.maxTries = max(r.maxTries, tries)
	}
	outageEnds := a.began.Add(a.clock.minutes(outageAt + outageFor))
	for number, at := range s.charged {
		if number < 60*(outageAt+outageFor) {
			r.recoveryIn = max(r.recoveryIn, at.Sub(outageEnds).Seconds()/a.clock.seconds(1).Seconds())
		}
	}
	r.longest = s.longest.Seconds() / a.clock.seconds(1).Seconds()
	return r
}

// header and row are lines of the table.
const header = "| way | calls | most in a second | most for one order | delivered again | orders in the error queue | charged after, s | others waited, s |\n" +
	"|---|---:|---:|---:|---:|---:|---:|---:|"

func (r result) row(name string) string {
	return fmt.Sprintf("| %s | %d | %d | %d | %d | %d | %.0f | %.0f |", name, r.calls, r.maxCalls, r.maxTries, r.retries, r.failed, r.recoveryIn, r.longest)
}
