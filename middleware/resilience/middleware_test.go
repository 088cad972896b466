package resilience_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/fallback"
	"github.com/reprise-go/reprise/middleware/resilience"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var everything = resilience.Config{
	Breaker:    resilience.Breaker{Failures: 1000},
	RateLimit:  resilience.RateLimit{Messages: 1000, Per: time.Millisecond, MaxWait: 2 * time.Second},
	Bulkhead:   resilience.Bulkhead{Concurrency: 100, MaxWait: 3 * time.Second},
	Timeout:    20 * time.Second,
	Retry:      resilience.Retry{Tries: 3, Delay: time.Second, Jitter: 0.5},
	TryTimeout: 5 * time.Second,
}

func TestDescribe_NamesTheStrategies(t *testing.T) {
	bubble(t, func(b *bed) {
		facts, err := b.policy(everything).For("order").Describe(core.MiddlewareScope{Endpoint: "orders", Transactions: core.TransactionReceiveOnly, Capabilities: inmemory.Everything()})
		if err != nil {
			b.Fatal(err)
		}
		var all []string
		for _, f := range facts {
			all = append(all, fmt.Sprintf("%v %v runs %d, refuses %v", f, f.MessageTypes, f.Runs, f.Refusals))
		}
		for i, want := range []string{`circuit breaker "bank" [order] runs 0, refuses`, `rate limiter "bank" [order] runs 0, refuses`, `bulkhead "bank" [order] runs 0, refuses`, `retry "bank" [order] runs 3, refuses []`} {
			if len(all) != 4 || !strings.HasPrefix(all[i], want) {
				b.Fatalf("%q, want %q", all, want)
			}
		}
		if !errors.Is(facts[0].Refusals[0], core.ErrCircuitOpen) || errors.Is(facts[1].Refusals[0], core.ErrCircuitOpen) || core.VerdictOf(facts[1].Refusals[0]) == nil {
			b.Errorf("refusals %v, %v", facts[0].Refusals, facts[1].Refusals)
		}
		ep := b.orders(middleware(b.policy(everything).Middleware()), func(context.Context, *core.Message) error { return nil })
		equal(b, "health", fmt.Sprint(ep.Health().Middleware), "[{circuit breaker bank closed [] [] true}]")
	})
}

// The tries of nested policies, immediate and delayed retries multiply.
func TestRetry_TriesMultiply(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range 100 {
		tries, outer, immediate, delayed := r.IntN(4)+1, r.IntN(3)+1, r.IntN(4), r.IntN(4)
		name := fmt.Sprintf("seed %d: %d x %d tries, %d immediate and %d delayed retries", seed, outer, tries, immediate, delayed)
		bubble(t, func(b *bed) {
			c := core.Config{Recoverability: core.Recoverability{
				Immediate: core.Immediate{NumberOfRetries: cmp.Or(immediate, core.Off)},
				Delayed:   core.Delayed{NumberOfRetries: cmp.Or(delayed, core.Off)},
			}}
			for j, n := range []int{outer, tries} {
				config := everything
				config.Name = fmt.Sprint("policy ", j)
				if config.Timeout, config.TryTimeout = 0, 0; j == 1 {
					config.Breaker, config.RateLimit, config.Bulkhead = resilience.Breaker{}, resilience.RateLimit{}, resilience.Bulkhead{}
					config.TryTimeout = time.Minute
				}
				if j == 0 && i%2 == 0 { // its refusals neither cost nor give an attempt
					config.Breaker = resilience.Breaker{Failures: r.IntN(3) + 1, OpenFor: time.Second}
				}
				config.Retry.Tries = n
				if n == 1 {
					config.Retry = resilience.Retry{}
				}
				c.Middleware = append(c.Middleware, b.policy(config).Middleware())
			}
			var runs atomic.Int64
			b.orders(c, func(context.Context, *core.Message) error { runs.Add(1); return errUnreachable })
			b.put("orders", "order", "m1")
			b.pass(24 * time.Hour)
			equal(b, name+": runs", runs.Load(), int64(tries*outer*(immediate+1)*(delayed+1)))
		})
		if t.Failed() {
			t.Fatalf("after %d cases", i)
		}
	}
}

func TestDescribe_Refuses(t *testing.T) {
	breaker := everything
	breaker.Name, breaker.Retry, breaker.Timeout, breaker.TryTimeout = "breaker", resilience.Retry{}, 0, 0
	retry := resilience.Config{Name: "retry", Retry: everything.Retry}
	failing := breaker
	failing.Refusal = resilience.Fail
	after := breaker
	after.Refusal = resilience.RetryAfter
	able := inmemory.Everything()
	unable := able
	unable.DelayedDelivery = false
	unmarked := able
	unmarked.Savepoints = false
	for _, test := range []struct {
		name   string
		caps   core.Capabilities
		config core.Config
		order  []resilience.Config
		types  []string
		says   string // "" is right
	}{
		{name: "breaker around retry", order: []resilience.Config{breaker, retry}},
		{name: "retry around breaker", order: []resilience.Config{retry, breaker}, says: `Middleware[1] (circuit breaker "breaker") stands inside of Middleware[0] (retry "retry"), which would try 3 times`},
		{name: "retry around a breaker that fails", order: []resilience.Config{retry, failing}},
		{name: "a policy in itself", order: []resilience.Config{retry, retry}, says: `Middleware[1] (retry "retry") is nested in Middleware[0] (retry "retry"), which is the same`},
		{name: "for no type", order: []resilience.Config{retry}, types: []string{}, says: `Middleware[0]: resilience: policy "retry": For was called without message types`},
		{name: "Defer without delayed delivery", caps: unable, order: []resilience.Config{breaker}},
		{name: "Defer without transactions", config: core.Config{Transactions: core.TransactionNone}, order: []resilience.Config{breaker}, says: `Refusal is Defer, but in transaction mode None no message can be kept`},
		{name: "RetryAfter without delayed delivery", caps: unable, order: []resilience.Config{after}, says: `policy "breaker": Refusal is RetryAfter, but on this transport nothing can be deferred (Capabilities.DelayedDelivery), so a refused message would go to the error queue: set Refusal to Defer`},
		{name: "Fail without delayed delivery", caps: unable, order: []resilience.Config{failing}},
		{name: "retry without delayed delivery", caps: unable, order: []resilience.Config{retry}},
		{name: "RetryAfter", order: []resilience.Config{after}},
		{
			name: "retry with atomic sends without savepoints", caps: unmarked, config: core.Config{Transactions: core.TransactionSendsAtomicWithReceive}, order: []resilience.Config{retry},
			says: `policy "retry": Retry.Tries is 3, but in transaction mode SendsAtomicWithReceive the work of a failed try would be committed`,
		},
		{name: "retry with atomic sends", config: core.Config{Transactions: core.TransactionSendsAtomicWithReceive}, order: []resilience.Config{retry}},
		{name: "breaker with atomic sends", caps: unmarked, config: core.Config{Transactions: core.TransactionSendsAtomicWithReceive}, order: []resilience.Config{breaker}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.caps.Transactions == nil {
				test.caps = able
			}
			bubbleOn(t, inmemory.Config{Capabilities: &test.caps}, func(b *bed) {
				c := test.config
				if c.Recoverability.Delayed.NumberOfRetries == 0 {
					c.Recoverability = none
				}
				if c.Transactions == core.TransactionDefault {
					c.Transactions = core.TransactionReceiveOnly
				}
				for _, config := range test.order {
					p := b.policy(config)
					m := p.Middleware()
					if test.types != nil {
						m = p.For(test.types...)
					}
					c.Middleware = append(c.Middleware, m)
				}
				_, err := core.New("orders", b.transport, c)
				switch {
				case test.says == "" && err != nil:
					b.Error(err)
				case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
					b.Errorf("New returned %v, want %q in it", err, test.says)
				}
			})
		})
	}
}

// The code of the documentation makes endpoints that start.
func TestDocumentation(t *testing.T) {
	bubble(t, func(b *bed) {
		for name, compose := range map[string]func() ([]core.Middleware, error){
			"single": single,
			"per type": func() ([]core.Middleware, error) {
				m, err := perType()
				return []core.Middleware{m}, err
			},
		} {
			m, err := compose()
			if err != nil {
				b.Fatalf("%s: %v", name, err)
			}
			if _, err := core.New("orders", b.transport, core.Config{Transactions: core.TransactionReceiveOnly, Middleware: m}); err != nil {
				b.Errorf("%s: %v", name, err)
			}
		}
		var states []resilience.State
		shop, err := newShop(b.transport, func(s resilience.State) { states = append(states, s) })
		if err != nil {
			b.Fatal(err)
		}
		calls := 0
		core.Handle(shop, chargeType, func(context.Context, *core.Message, string) error { calls++; return errUnavailable })
		for range 6 {
			err = shop.Invoke(b.Context(), chargeType.Of("order 42"))
		}
		if calls != 15 || !errors.Is(err, core.ErrCircuitOpen) || !slices.Equal(states, []resilience.State{resilience.Open}) {
			b.Errorf("%d calls, then %v; states %v", calls, err, states)
		}

		p := b.policy(resilience.Config{Breaker: resilience.Breaker{Failures: 1}})
		ep := b.orders(middleware(p.Middleware()), func(context.Context, *core.Message) error { return nil })
		answer := httptest.NewRecorder()
		ready(ep)(answer, nil)
		equal(b, "answer", fmt.Sprint(answer.Code, " ", answer.Body), "200 circuit breaker bank: closed\n")
	})
}

// A fallback for an open circuit stands outside of the breaker, for an endpoint and for a
// handler.
func TestDescribe_RefusesAFallbackInsideItsBreaker(t *testing.T) {
	bubble(t, func(b *bed) {
		for _, refusal := range []resilience.Refusal{resilience.Defer, resilience.Fail} { // both are an open circuit
			p := b.policy(resilience.Config{Breaker: resilience.Breaker{Failures: 1}, Refusal: refusal})
			later := fallback.Middleware{On: fallback.On{OpenCircuit: true}, Handle: func(context.Context, *core.Message, error) error { return nil }}
			const says = `(fallback) stands inside of Middleware[0] (circuit breaker "bank"), which refuses messages before they reach it`
			if _, err := core.New("orders", b.transport, middleware(p.Middleware(), later)); err == nil || !strings.Contains(err.Error(), says) {
				b.Errorf("New returned %v", err)
			}
			if _, err := core.New("orders", b.transport, middleware(later, p.Middleware())); err != nil {
				b.Error(err)
			}
			ep, err := core.New("orders", b.transport, middleware(p.Middleware()))
			if err != nil {
				b.Fatal(err)
			}
			handler := func(context.Context, *core.Message, string) error { return nil }
			core.Handle(ep, orderStringType, handler, core.HandleOptions{Middleware: []core.Middleware{later}})
			if err := ep.Err(); err == nil || !strings.Contains(err.Error(), says) {
				b.Errorf("Handle: %v", err)
			}
			later.On = fallback.On{Errors: []error{core.ErrCircuitOpen}} // one of the handler's client
			if _, err := core.New("orders", b.transport, middleware(p.Middleware(), later)); err != nil {
				b.Error(err)
			}
		}
	})
}

// unitOfWork is middleware with a transaction, which refuses retries inside of it.
type unitOfWork struct{ begun, committed int }

func (u *unitOfWork) Describe(core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
	return []core.MiddlewareFacts{{Kind: "unit of work", Check: func(_, inner []core.MiddlewareFacts) error {
		for _, f := range inner {
			if f.Runs > 1 || f.HidesFailures {
				return fmt.Errorf("stands around %v, and would commit", f)
			}
		}
		return nil
	}}}, nil
}

func (u *unitOfWork) Wrap(_ core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		u.begun++
		err := next(ctx, m)
		if err == nil {
			u.committed++
		}
		return err
	}
}

// Each try has a transaction, so that the rows of a failed one are rolled back. In the other
// order one transaction would commit those of all tries.
func TestDescribe_RetryAroundATransaction(t *testing.T) {
	bubble(t, func(b *bed) {
		work := &unitOfWork{}
		p := b.policy(resilience.Config{Retry: resilience.Retry{Tries: 3}})
		const says = `Middleware[0] (unit of work) stands around Middleware[1] (retry "bank"), and would commit`
		if _, err := core.New("orders", b.transport, middleware(work, p.Middleware())); err == nil || !strings.Contains(err.Error(), says) {
			b.Errorf("New returned %v, want %q in it", err, says)
		}
		b.orders(middleware(p.Middleware(), work), func(context.Context, *core.Message) error {
			if work.begun < 3 {
				return errUnreachable
			}
			return nil
		})
		b.put("orders", "order", "m1")
		b.pass(time.Minute)
		equal(b, "transactions begun, and committed", fmt.Sprint(work.begun, work.committed), "3 1")
	})
}
