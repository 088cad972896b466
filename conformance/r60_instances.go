package conformance

import (
	"context"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// instanceCases are about endpoints with a separate queue for each instance.
var instanceCases = []testCase{
	{rule: "R60", title: "of two instances that ask 50 questions each, each gets its own answers, once", needs: []need{provisioning}, run: func(t *caseT) {
		const questions = 50
		c := t.conversation(core.SendOptions{ReplyToInstance: true})
		var expected [2][]core.Outgoing
		for i := range questions {
			for a := range c.asking {
				expected[a] = append(expected[a], c.ask(a, fmt.Sprintf("question %d of instance %d", i, a)))
			}
		}
		for a, answers := range c.answers {
			answers.releaseAll()
			t.awaitCount("answers at the instance that asked", questions, answers.messages)
			t.wantOnce(expected[a], answers)
		}
		c.end()
		for a, answers := range c.answers {
			if n := answers.messages(); n != questions {
				t.fail(fmt.Sprintf("instance %d gets the answers to its %d questions", a, questions), "it got %d", n)
			}
		}
	}},
	{rule: "R60", title: "answers to an endpoint come to any of its instances, also where these have queues", needs: []need{provisioning}, run: func(t *caseT) {
		const questions = 50
		c := t.conversation(core.SendOptions{})
		var expected []core.Outgoing
		for i := range questions {
			expected = append(expected, c.ask(0, fmt.Sprintf("question %d", i)))
		}
		for _, answers := range c.answers { // which are waiting for permission
			t.awaitCount("answers at each of two instances", 1, answers.messages)
		}
		for _, answers := range c.answers {
			answers.releaseAll()
		}
		t.awaitCount("answers at the two instances", questions, func() int { return c.answers[0].messages() + c.answers[1].messages() })
		c.end()
		t.wantOnce(expected, c.answers[:]...)
	}},
	{rule: "R60", title: "answers to an instance that is stopped wait for it", needs: []need{provisioning}, run: func(t *caseT) {
		const questions = 5
		c := t.conversation(core.SendOptions{ReplyToInstance: true})
		for _, answers := range c.answers {
			answers.releaseAll()
		}
		c.asking[0].end()
		var expected []core.Outgoing
		for i := range questions {
			expected = append(expected, c.ask(0, fmt.Sprintf("question %d", i)))
		}
		t.awaitCount("questions that were answered", questions, c.questions.messages)
		t.wantSteady("the number of answers that another instance got", 0, c.answers[1].messages)
		c.asking[0].run()
		t.awaitCount("answers at the instance that asked, once it runs again", questions, c.answers[0].messages)
		c.end()
		t.wantOnce(expected, c.answers[0])
	}},
	{rule: "R60", title: "a message of an instance's queue that fails is retried there, fails with its address, and comes back there", needs: []need{provisioning}, run: func(t *caseT) {
		transport := t.open()
		queue, errorQueue := t.queue(transport), t.queue(transport)
		seen := [2]*counter{{}, {}}
		var instances [2]*service
		for i := range instances {
			instances[i] = t.instance(queue, errorQueue, i, func(c *core.Config) {
				c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(1), t.delayed(1)
			})
			instances[i].handle("job", func(_ context.Context, m *core.Message) error {
				if seen[i].add(string(m.RawBody())) > 0 && m.Headers.Get("Repaired") == "" {
					return errHandler
				}
				return nil
			})
			instances[i].run()
		}
		own, err := transport.Address(instanceQueue(queue, 0))
		if err != nil {
			t.stop("Address takes the name of an instance's queue", "%v", err)
		}
		t.send(transport, t.command(own, "job", "bad"))
		d := t.receiver(transport, errorQueue, 1).next()
		if got := d.Incoming().Headers.Get(core.HeaderFailedQ); got != own {
			t.fail(fmt.Sprintf("the header %s is the address of the instance's queue, %q", core.HeaderFailedQ, own), "%q", got)
		}
		attempts := seen[0].get("bad")
		again := core.Outgoing{ID: d.Incoming().ID, Queue: d.Incoming().Headers.Get(core.HeaderFailedQ), Headers: d.Incoming().Headers, Body: d.Incoming().Body}
		again.Headers.Set("Repaired", "yes")
		t.send(transport, again)
		t.complete(d)
		t.await("a message that is sent back to where it failed comes to the instance", func() bool { return seen[0].get("bad") > attempts })
		for _, s := range instances {
			s.end()
		}
		if n := seen[1].total(); n > 0 {
			t.fail("no attempt of a message of one instance's queue is made by another instance", "%d were", n)
		}
		t.wantLeft(queue, "after all was handled")
		t.wantLeft(own, "after all was handled")
		t.wantLeft(errorQueue, "after the only message in it was sent back")
	}},
	{rule: "R60", title: "messages flow through both queues of an instance under one limit, while it is paused, resumed and restarted", needs: []need{provisioning}, run: func(t *caseT) {
		const each, concurrency = 60, 3
		transport := t.open()
		queue, errorQueue := t.queue(transport), t.queue(transport)
		s := t.instance(queue, errorQueue, 0, func(c *core.Config) { c.Concurrency = concurrency })
		jobs := t.blockingHandler()
		s.handle("job", jobs.handle)
		s.run()
		var msgs []core.Outgoing
		for i := range each {
			msgs = append(msgs, t.command(queue, "job", fmt.Sprintf("shared %d", i)), t.command(instanceQueue(queue, 0), "job", fmt.Sprintf("own %d", i)))
		}
		t.send(transport, msgs...)
		passed := 0
		for round := range 4 {
			t.awaitCount("messages begun", passed+concurrency, jobs.messages)
			s.Pause()
			jobs.release(concurrency)
			s.Resume()
			jobs.release(2 + round)
			passed += concurrency + 2 + round
		}
		t.awaitCount("messages begun", passed+concurrency, jobs.messages)
		jobs.releaseAll()
		s.end()
		s.run()
		t.awaitCount("messages handled", 2*each, jobs.messages)
		s.end()
		t.wantOnce(msgs, jobs)
		if most := jobs.maxConcurrent(); most > concurrency {
			t.fail(fmt.Sprintf("no more than %d handlers run at the same time", concurrency), "%d did", most)
		}
		t.wantLeft(queue, "after all was handled")
		t.wantLeft(instanceQueue(queue, 0), "after all was handled")
		t.wantLeft(errorQueue, "after all was handled")
	}},
}

// instance makes an instance of an endpoint, with its own queue and its own transport.
func (t *caseT) instance(queue, errorQueue string, i int, change func(c *core.Config)) *service {
	return t.serviceOn(t.open(), queue, errorQueue, func(c *core.Config) {
		c.InstanceQueue, c.Instance = true, fmt.Sprint("instance", i)
		c.Provision = core.ProvisionAlways
		if change != nil {
			change(c)
		}
	})
}

// instanceQueue returns the name of an instance's queue.
func instanceQueue(queue string, i int) string { return fmt.Sprintf("%s-instance%d", queue, i) }

// conversation is two instances of an endpoint that ask, and an endpoint that answers.
type conversation struct {
	t         *caseT
	options   core.SendOptions
	asking    [2]*service
	answers   [2]*blockingHandler
	answering *service
	questions *blockingHandler
}

// conversation starts all three endpoints. Handlers of answers wait until their
// blockingHandler releases them.
func (t *caseT) conversation(options core.SendOptions) *conversation {
	c := &conversation{t: t, options: options, questions: t.blockingHandler()}
	transport := t.open()
	queue, errorQueue := t.queue(transport), t.queue(transport)
	for i := range c.asking {
		c.answers[i] = t.blockingHandler()
		c.asking[i] = t.instance(queue, errorQueue, i, func(c *core.Config) { c.Concurrency = 4 })
		c.asking[i].handle("answer", c.answers[i].handle)
		c.asking[i].run()
	}
	c.answering = t.service(transport, nil)
	c.questions.releaseAll()
	c.answering.handle("question", func(ctx context.Context, m *core.Message) error {
		if err := c.questions.handle(ctx, m); err != nil {
			return err
		}
		return m.Reply("answer", m.RawBody())
	})
	c.answering.run()
	return c
}

// ask sends a question to one of the instances. The answer has the same text.
func (c *conversation) ask(instance int, question string) core.Outgoing {
	ctx, cancel := c.t.withTimeout()
	defer cancel()
	if err := c.asking[instance].Send(ctx, c.answering.queue, "question", []byte(question), c.options); err != nil {
		c.t.stop("Endpoint.Send sends a question", "%v", err)
	}
	return c.t.message(c.asking[instance].queue, question)
}

// end stops all endpoints, and checks that no message is left.
func (c *conversation) end() {
	c.answering.end()
	for i, s := range c.asking {
		s.end()
		c.t.wantLeft(instanceQueue(s.queue, i), "after all questions were answered")
	}
	for _, queue := range []string{c.asking[0].queue, c.asking[0].errorQueue, c.answering.queue, c.answering.errorQueue} {
		c.t.wantLeft(queue, "after all questions were answered")
	}
}
