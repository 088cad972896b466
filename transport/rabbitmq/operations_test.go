package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// What docs/transports/rabbitmq.md gives operators to run is run here: every command in it
// has a name in a comment before it, and is used by a test of that name.

// document returns the blocks of commands and of settings by their names.
func document(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/transports/rabbitmq.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, found := range regexp.MustCompile("(?s)<!-- (?:sh|conf): ([a-z-]+) -->\n```(?:sh|ini)\n(.*?)```\n").FindAllStringSubmatch(string(text), -1) {
		if _, repeated := blocks[found[1]]; repeated {
			t.Errorf("the document has two blocks named %q", found[1])
		}
		blocks[found[1]] = found[2]
	}
	const firstLines = 1 // which make a module
	if n := len(regexp.MustCompile("(?m)^```(sh|ini)$").FindAllString(string(text), -1)); n != len(blocks)+firstLines {
		t.Errorf("the document has %d blocks of commands, but %d have a name", n-firstLines, len(blocks))
	}
	return blocks
}

// operator has a virtual host with the queues of the document.
type operator struct {
	*site
	block func(name string) string
}

// run carries out a block, in which the virtual host is shop, and returns what it printed.
func (o *operator) run(t *testing.T, name string, replacements ...string) string {
	t.Helper()
	replacements = append(replacements, "--vhost shop ", "--vhost "+o.vhost+" ", "--vhost shop\n", "--vhost "+o.vhost+"\n",
		"amqp:///shop", "amqp:///"+o.vhost, "/shop/", "/"+o.vhost+"/")
	text := strings.NewReplacer(replacements...).Replace(o.block(name))
	// A shell takes the commands apart, as it would for an operator.
	words, err := exec.CommandContext(t.Context(), "sh", "-ec", `
		rabbitmqctl() { printf '%s\0' rabbitmqctl "$@"; echo; }
		curl() { printf '%s\0' curl "$@"; echo; }
	`+text).Output()
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var printed strings.Builder
	for command := range strings.SplitSeq(strings.TrimSuffix(string(words), "\x00\n"), "\x00\n") {
		args := strings.Split(command, "\x00")
		var answer string
		if args[0] == "curl" {
			answer, err = o.curl(t.Context(), args[1:])
		} else {
			answer, err = o.Control(t.Context(), args[1:]...)
		}
		if err != nil {
			t.Fatalf("%s: %q: %v", name, args, err)
		}
		printed.WriteString(answer + "\n")
	}
	return printed.String()
}

// curl sends the same request as curl.
func (o *operator) curl(ctx context.Context, args []string) (string, error) {
	method, path, body := "GET", "", ""
	for i := 0; i < len(args); i++ {
		switch args[i] {
		case "--user", "--header":
			i++
		case "--data":
			i++
			method, body = "POST", args[i]
		case "--request":
			i++
			method = args[i]
		default:
			u, err := url.Parse(args[i])
			if err != nil {
				return "", err
			}
			path = u.EscapedPath()
		}
	}
	return o.Manage(ctx, method, path, body)
}

// queues returns a transport of a user with every right.
func (o *operator) queues(t *testing.T, names ...string) *rabbitmq.Transport {
	t.Helper()
	return o.provisioned(t, rabbitmq.Config{}, names...)
}

// prints waits until a block prints a line of this form: figures of quorum queues are some
// seconds old.
func (o *operator) prints(t *testing.T, name, line string) {
	t.Helper()
	form := regexp.MustCompile("(?m)^" + line + "$")
	last := ""
	for end := time.Now().Add(patience); !form.MatchString(last); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s prints no line like %s:\n%s", name, line, last)
		}
		last = o.run(t, name)
	}
}

// lists waits until the figures that list_queues prints have a queue with n messages,
// without starting an Erlang for each look.
func (o *operator) lists(t *testing.T, messages int) {
	t.Helper()
	awaitTrue(t, "the figures have a queue with the messages", func() bool {
		return o.evalNumber(t, fmt.Sprintf(`length([1 || {{resource, <<"%s">>, queue, _}, %d, _, _, _} <- ets:tab2list(queue_coarse_metrics)]).`, o.vhost, messages)) > 0
	})
}

// operations are tests of blocks, by the names of these.
var operations = map[string]func(t *testing.T, o *operator){
	"return": returns,
	"limit": func(t *testing.T, o *operator) {
		o.queue(t, "billing", amqp.Table{"x-queue-type": "quorum"})
		transport := o.open(t, rabbitmq.Config{ManagementURL: o.ManagementURL()})
		if err := receive(t, transport, "billing", 50); (err != nil) != o.limits() {
			t.Errorf("without a policy: %v", err)
		}
		if !o.limits() {
			return // and it does not know this kind of policy yet
		}
		o.run(t, "limit")
		if err := receive(t, transport, "billing", 99_999); err != nil {
			t.Error(err)
		}
		saysAll(t, receive(t, transport, "billing", 100_000), "nsb.billing.delivery-limit", "says 100000")
	},
	"management-user": func(t *testing.T, o *operator) {
		o.queues(t, "billing")
		name := "limits." + o.vhost
		t.Cleanup(func() { o.deleteUser(t, name) })
		u, err := url.Parse(o.ManagementURL())
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(name, "the password")
		transport := o.open(t, rabbitmq.Config{ManagementURL: u.String()})
		saysAll(t, receive(t, transport, "billing", 50), "401 Unauthorized")
		o.run(t, "management-user", "limits ", name+" ")
		if err := receive(t, transport, "billing", 50); err != nil {
			t.Error(err)
		}
	},
	"aside":       replacesQueue,
	"rights":      rightsSuffice,
	"undelivered": undeliveredIsKept,
	"events":      eventsOfOthers,
	"subscriptions": func(t *testing.T, o *operator) {
		transport := o.queues(t, "billing")
		if err := transport.Subscribe(t.Context(), "billing", "orders.Placed"); err != nil {
			t.Fatal(err)
		}
		o.prints(t, "subscriptions", "topic:orders.Placed\tbilling\texchange\t")
	},
	"depth": func(t *testing.T, o *operator) {
		mustSend(t, o.queues(t, "billing"), numbered("billing", 1, 3)...)
		o.lists(t, 3)
		o.prints(t, "depth", "billing\t(quorum|rabbit_quorum_queue)\t3\t0\t0")
	},
	"stuck": func(t *testing.T, o *operator) {
		o.delayedAndRemoved(t, "gone")
		o.prints(t, "stuck", `nsb\.v2\.delay-level-\d\d\t1\t0`) // the level in which it was last
	},
	"who": func(t *testing.T, o *operator) {
		transport := o.queues(t, "billing")
		consume(t, transport, core.ReceiverConfig{Queue: "billing", MaxInFlight: 7})
		o.prints(t, "who", "billing\t.*\t7\t.*")
		o.prints(t, "who", `.*\trunning\t.*receive billing.*`)
	},
	"failed": func(t *testing.T, o *operator) {
		transport := o.queues(t, "error")
		failed := core.Outgoing{ID: "1", Queue: "error", Body: []byte("42")}
		failed.Headers.Set(headers.FailedQ, "billing")
		mustSend(t, transport, failed)
		saysAll(t, errors.New(o.run(t, "failed")), `"NServiceBus.FailedQ":"billing"`, `"payload":"42"`)
		o.lists(t, 1)
		o.prints(t, "depth", "error\t.*\t1\t0\t0")
	},
	"purge": func(t *testing.T, o *operator) {
		transport := o.queues(t, "billing")
		mustSend(t, transport, numbered("billing", 1, 3)...)
		o.run(t, "purge")
		if left := o.take(t, "billing"); len(left) > 0 {
			t.Errorf("these are left: %v", left)
		}
	},
	"remove": func(t *testing.T, o *operator) {
		transport := o.queues(t)
		before := o.catalogue(t)
		provision(t, transport, "billing")
		mustSend(t, transport, numbered("billing", 1, 1)...)
		o.run(t, "remove")
		stays := "bindings source=nsb.v2.delay-delivery destination=reprise.delay-delivery destination_type=exchange routing_key=" + strings.Repeat("*.", 28) + "billing arguments=map[]"
		sameCatalogue(t, o.catalogue(t), append(before, stays))
		if err := transport.Send(t.Context(), numbered("billing", 2, 1)...); !errors.Is(err, core.ErrQueueNotFound) {
			t.Errorf("Send = %v, want ErrQueueNotFound", err)
		}
	},
}

// rightsSuffice for an endpoint, and for nothing else.
func rightsSuffice(t *testing.T, o *operator) {
	admin := o.queues(t, "billing", "error", "shop", "other")
	mustSend(t, admin, core.Outgoing{ID: "1", Topic: "invoices.Written"}, core.Outgoing{ID: "2", Topic: "orders.Placed"})
	app := rabbitmq.Config{URLs: []string{o.user(t, "app", "", "", "")}}
	o.run(t, "rights", "app ", "app."+o.vhost+" ")

	transport := o.open(t, app)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := errors.Join(
		transport.Check(ctx, core.Topology{InputQueue: "billing", Queues: []string{"billing", "error"}}),
		transport.Subscribe(ctx, "billing", "orders.Placed"),
		transport.Send(ctx, numbered("billing", 1, 1)...),
		transport.Send(ctx, numbered("error", 2, 1)...),
		transport.Send(ctx, numbered("shop", 3, 1)...),
		transport.Send(ctx, core.Outgoing{ID: "4", Queue: "billing", Delay: time.Second, Body: []byte("4")}),
		transport.Send(ctx, core.Outgoing{ID: "5", Topic: "invoices.Written"}),
		admin.Send(ctx, core.Outgoing{ID: "6", Topic: "orders.Placed", Body: []byte("6")}),
	); err != nil {
		t.Fatal(err)
	}
	drain(t, consume(t, transport, core.ReceiverConfig{Queue: "billing", MaxDeliveries: 50}), 3)

	saysAll(t, o.open(t, app).Send(ctx, core.Outgoing{ID: "7", Queue: "other", Delay: time.Second}), "ACCESS_REFUSED")
	saysAll(t, o.open(t, app).Send(ctx, core.Outgoing{ID: "8", Topic: "invoices.Paid"}), "ACCESS_REFUSED")
	saysAll(t, o.open(t, app).Subscribe(ctx, "billing", "invoices.Written"), "ACCESS_REFUSED")
	saysAll(t, receive(t, o.open(t, app), "shop", 50), "ACCESS_REFUSED")
	saysAll(t, o.open(t, app).Provision(ctx, core.Topology{InputQueue: "new", Queues: []string{"new"}}), "ACCESS_REFUSED")
}

// undeliveredIsKept although its queue is deleted while it waits, and nothing is stuck.
func undeliveredIsKept(t *testing.T, o *operator) {
	transport := o.queues(t)
	o.run(t, "undelivered")
	o.delayedAndRemoved(t, "billing")
	transport.PollUndelivered(20 * time.Millisecond)
	if came := drain(t, consume(t, transport, core.ReceiverConfig{Queue: "reprise.undelivered"}), 1); came["42"] != 1 {
		t.Errorf("this came: %v", came)
	}
}

// delayedAndRemoved sends a message with the body "42" to a queue that it removes before the
// message is due. Messages to it are bound as those to a queue that only NServiceBus's
// endpoints know.
func (o *operator) delayedAndRemoved(t *testing.T, queue string) {
	t.Helper()
	for delay := 2 * time.Second; ; delay *= 2 {
		transport := o.queues(t, queue)
		due := time.Now().Add(delay)
		mustSend(t, transport, core.Outgoing{ID: "1", Queue: queue, Delay: delay, Body: []byte("42")})
		if err := o.channel(t).ExchangeUnbind("reprise.delay-delivery", strings.Repeat("*.", 28)+queue, "nsb.v2.delay-delivery", false, nil); err != nil {
			t.Fatal(err)
		}
		o.run(t, "remove", "billing\n", queue+"\n")
		if time.Now().Before(due) {
			return
		}
		// It may have come first, and be gone with the queue.
	}
}

// eventsOfOthers come through a binding.
func eventsOfOthers(t *testing.T, o *operator) {
	transport := o.queues(t, "billing")
	ch := o.channel(t)
	if err := errors.Join(
		transport.Subscribe(t.Context(), "billing", "Shop.OrderPlaced"),
		ch.ExchangeDeclare("Shop:OrderPlaced", "fanout", true, false, false, false, nil),
	); err != nil {
		t.Fatal(err)
	}
	o.run(t, "events")
	if err := ch.Publish("Shop:OrderPlaced", "", false, false, amqp.Publishing{Body: []byte("42")}); err != nil {
		t.Fatal(err)
	}
	if came := drain(t, consume(t, transport, core.ReceiverConfig{Queue: "billing"}), 1); came["42"] != 1 {
		t.Errorf("this came: %v", came)
	}
}

func TestOperations(t *testing.T) {
	if testing.Short() {
		t.Skip("servers load rabbitmqctl, and figures are seconds old: not in short runs")
	}
	t.Parallel()
	blocks := document(t)
	for name := range blocks {
		if _, tested := operations[name]; !tested && !slices.Contains(ownServerOperations, name) && !slices.Contains(asideOperations, name) {
			t.Errorf("nothing tests the block %q", name)
		}
	}
	for name, test := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			on := onNewest
			if slices.Contains(releaseOperations, name) {
				on = onBoth
			}
			on(t, func(t *testing.T, s *site) {
				s.delays = slices.Contains(delayOperations, name)
				test(t, newOperator(t, s, blocks))
			})
		})
	}
}

func newOperator(t *testing.T, s *site, blocks map[string]string) *operator {
	return &operator{s, func(name string) string {
		t.Helper()
		if blocks[name] == "" {
			t.Fatalf("the document has no block named %q", name)
		}
		return blocks[name]
	}}
}

// delayOperations are the blocks that speak of delayed messages, or of their queues.
var delayOperations = []string{"aside", "rights", "undelivered", "stuck", "remove"}

// releaseOperations are the blocks that are about something in which releases differ: limits, types
// of queues, and the queues of delays. The other commands are the same in all.
var releaseOperations = []string{"aside", "limit", "depth", "rights", "undelivered", "stuck"}

// asideOperations are the blocks of the operation "aside".
var asideOperations = []string{"replace", "back", "aside-gone"}

// ownServerOperations are the blocks that change a server (TestOwnServer).
var ownServerOperations = []string{"consumer-timeout", "consumer-timeout-now"}

func testOperationConsumerTimeout(t *testing.T, o *operator) {
	o.timeout(t, "14400000")
	if _, err := o.Eval(t.Context(), "application:set_env(rabbit, consumer_timeout, 1)."); err != nil {
		t.Fatal(err)
	}
	o.timeout(t, "1")
	o.run(t, "consumer-timeout-now")
	o.timeout(t, "14400000")
}

// timeout fails the test unless that is the broker's consumer_timeout.
func (o *operator) timeout(t *testing.T, want string) {
	t.Helper()
	got, err := o.Eval(t.Context(), "element(2, application:get_env(rabbit, consumer_timeout)).")
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("consumer_timeout is %s, want %s", got, want)
	}
}

// returns has an operator return failed messages.
func returns(t *testing.T, o *operator) {
	transport := o.queues(t, "billing", "error")
	failed := numbered("error", 1, 20)
	for i := range failed {
		failed[i].Headers.Set(headers.MessageID, failed[i].ID)
		failed[i].Headers.Set(headers.FailedQ, "billing")
	}
	mustSend(t, transport, failed...)
	o.run(t, "return")
	r := consume(t, transport, core.ReceiverConfig{Queue: "billing"})
	for came := map[string]bool{}; len(came) < len(failed); {
		for _, d := range next(t, r, 10) {
			in := d.Incoming()
			if in.ID != string(in.Body) || in.DeliveryCount != 1 || in.Headers.Get(headers.FailedQ) != "billing" {
				t.Errorf("it came as %+v", in)
			}
			came[in.ID] = true
			if err := d.Complete(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left := o.take(t, "error"); len(left) > 0 {
		t.Errorf("these are left: %v", left)
	}
}

// replacesQueue replaces a queue by one that NServiceBus's installer accepts, and loses no
// message: neither those in it, nor those that NServiceBus sends at the same time, nor delayed
// ones that fall due.
func replacesQueue(t *testing.T, o *operator) {
	const waiting = 100
	ours := o.queues(t, "billing")
	want := map[string]bool{}
	sent := func(bodies ...string) {
		for _, body := range bodies {
			want[body] = true
		}
	}
	for _, m := range numbered("billing", 1, waiting) {
		mustSend(t, ours, m)
		sent(m.ID)
	}
	mustSend(t, ours, core.Outgoing{ID: "soon", Queue: "billing", Delay: time.Second, Body: []byte("soon")},
		core.Outgoing{ID: "later", Queue: "billing", Delay: 4 * time.Second, Body: []byte("later")})
	sent("soon", "later")

	net := o.netHost(t)
	o.run(t, "aside")
	net.send(t, "billing", "sent before the deletion")
	sent("sent before the deletion")
	awaitTrue(t, "the shovel has ended", func() bool { // some of those that came in the meantime may be in both queues
		left, err := o.Control(t.Context(), "list_parameters", "--vhost", o.vhost)
		if err != nil {
			t.Fatal(err)
		}
		return !strings.Contains(left, "aside")
	})
	o.run(t, "replace")
	net.send(t, "billing", "sent without a queue")
	sent("sent without a queue")

	cfg := o.beside(t)
	theirs := o.open(t, cfg)
	provision(t, theirs, "billing")
	net.install(t, "billing")
	o.run(t, "back")
	r := consume(t, theirs, core.ReceiverConfig{Queue: "billing", MaxDeliveries: 50})
	came := drain(t, r, len(want))
	for body := range want {
		if came[body] == 0 {
			t.Errorf("%q is lost", body)
		}
	}
	for n := range waiting {
		if body := fmt.Sprint(n + 1); came[body] > 1 {
			t.Errorf("%q, which waited, came %d times", body, came[body])
		}
	}
	o.run(t, "aside-gone")
	net.install(t, "billing")
}
