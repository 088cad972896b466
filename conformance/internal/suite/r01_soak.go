package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
)

var soakCases = []testCase{
	{rule: "R1", title: "hundreds of messages of all kinds are each attempted as often as configured, and settled correctly", slow: true, run: func(t *caseT) {
		plan := t.soakPlan(t.many(1000, 250))
		k := &soak{t: t, plan: plan, attempts: &counter{}, ends: &counter{}}
		transport := t.open()
		sinks := t.open()
		k.done = t.queue(transport)
		s := t.service(transport, func(c *core.Config) {
			c.Concurrency = 16
			if t.mode != core.TransactionNone {
				c.Recoverability.Immediate = core.Immediate{NumberOfRetries: soakImmediate}
			}
			if t.canDelay() {
				c.Recoverability.Delayed = core.Delayed{NumberOfRetries: 1, TimeIncrease: 10 * time.Millisecond}
			}
		})
		s.handle("job", k.handle)
		unexpected := t.queue(transport)
		sink := func(queue, end string) *service {
			sink := t.serviceOn(sinks, queue, unexpected, nil)
			sink.handle("job", func(_ context.Context, m *core.Message) error {
				k.ends.add(string(m.RawBody()) + end)
				return nil
			})
			sink.run()
			return sink
		}
		good, bad := sink(k.done, soakDone), sink(s.errorQueue, soakError)
		s.run()
		for part := range slices.Chunk(plan, 100) {
			var msgs []core.Outgoing
			for _, p := range part {
				msgs = append(msgs, t.command(s.queue, "job", p.name))
			}
			t.send(transport, msgs...)
		}
		t.awaitCount("messages that were handled, moved to the error queue or discarded", len(plan), k.ends.total)
		t.sleep(t.quietPeriod())
		for _, s := range []*service{s, good, bad} {
			s.end()
		}
		k.account()
		for _, queue := range []string{s.queue, k.done, s.errorQueue, unexpected} {
			t.wantLeft(queue, "when all have ended")
		}
	}},
}

const soakImmediate = 3

// The destinations of the messages of the soak.
const (
	soakDone      = " is handled"
	soakError     = " is moved to the error queue"
	soakDiscarded = " is discarded"
)

// soakJob is the plan for one message.
type soakJob struct {
	name     string
	kind     string
	failures int // before the handler succeeds
	attempts int
	end      string
}

func (t *caseT) soakPlan(n int) []soakJob {
	plan := make([]soakJob, n)
	rounds := 1
	if t.canDelay() {
		rounds = 2
	}
	for i := range plan {
		j := soakJob{kind: "good", attempts: 1, end: soakDone}
		switch p := t.random.IntN(100); {
		case p < 12:
			j.kind, j.failures = "fails", 1+t.random.IntN(soakImmediate)
			j.attempts = j.failures + 1
		case p < 16:
			j.kind, j.failures, j.attempts = "fails", soakImmediate+1, soakImmediate+2
			if rounds == 1 {
				j.kind, j.attempts, j.end = "fails for good", soakImmediate+1, soakError
			}
		case p < 22:
			j.kind, j.attempts, j.end = "fails for good", (soakImmediate+1)*rounds, soakError
		case p < 26:
			j.kind, j.end = "unrecoverable", soakError
		case p < 30:
			j.kind, j.end = "discard", soakDiscarded
		case p < 36:
			j.kind, j.failures = "defer", 1+t.random.IntN(2)
			j.attempts = j.failures + 1
			if !t.canDelay() {
				j.attempts, j.end = 1, soakError
			}
		case p < 44:
			j.kind = "slow"
		}
		if t.mode == core.TransactionNone && j.attempts > 1 {
			j.attempts, j.end = 1, soakError
		}
		j.name = fmt.Sprintf("%03d %s", i, j.kind)
		plan[i] = j
	}
	return plan
}

// soak is the handler of the soak test and its counts.
type soak struct {
	t        *caseT
	plan     []soakJob
	done     string
	attempts *counter
	ends     *counter // by name and destination
}

func (k *soak) handle(_ context.Context, m *core.Message) error {
	name := string(m.RawBody())
	i := 0
	if _, err := fmt.Sscanf(name, "%d", &i); err != nil || i >= len(k.plan) || k.plan[i].name != name {
		return fmt.Errorf("%q was not sent", name)
	}
	j := k.plan[i]
	attempt := k.attempts.add(name)
	if attempt > 10*j.attempts { // ends the case if a transport never counts
		return core.Discard(errors.New("attempted too often"))
	}
	switch {
	case j.kind == "fails for good", j.kind == "fails" && attempt <= j.failures:
		return errHandler
	case j.kind == "defer" && attempt <= j.failures:
		return core.Defer(errors.New("not yet"), 10*time.Millisecond)
	case j.kind == "unrecoverable":
		return core.GiveUp(errHandler)
	case j.kind == "discard":
		k.ends.add(name + soakDiscarded)
		return core.Discard(errors.New("the case wants it"))
	case j.kind == "slow":
		k.t.sleep(20 * time.Millisecond)
	}
	return m.Send(k.done, jobType.Of(m.RawBody()))
}

// account compares the plan with the observations.
func (k *soak) account() {
	attempts, ends := map[string]string{}, map[string]string{}
	for _, j := range k.plan {
		if n := k.attempts.get(j.name); !k.t.attemptsFit(n, j.attempts) {
			attempts[j.name] = fmt.Sprintf("%d instead of %d", n, j.attempts)
		}
		for _, end := range []string{soakDone, soakError, soakDiscarded} {
			want := 0
			if end == j.end {
				want = 1
			}
			n := k.ends.get(j.name + end)
			switch {
			case n == want:
			case k.t.caps.MayDuplicate && want == 1 && n > 1:
			default:
				ends[j.name+end] = fmt.Sprintf("%d times instead of %d", n, want)
			}
		}
	}
	if len(attempts) > 0 {
		k.t.fail("each message is attempted (immediate + 1) x (delayed + 1) times, or until it does not fail", "%s", listed(attempts))
	}
	if len(ends) > 0 {
		k.t.fail("each message ends once: handled, in the error queue, or discarded", "%s", listed(ends))
	}
}
