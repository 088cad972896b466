package rabbitmq_test

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// applyFix runs every command that an error names as the fix.
func (s *site) applyFix(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		t.Fatal("there is no error")
	}
	found := regexp.MustCompile(`run (rabbitmqctl .*?)(?: and set Config|; and|$)`).FindAllStringSubmatch(err.Error(), -1)
	if found == nil {
		t.Fatalf("the error names no command: %v", err)
	}
	for _, match := range found {
		// A shell takes the command apart, as it would for an operator.
		words, err := exec.CommandContext(t.Context(), "sh", "-c", `rabbitmqctl() { printf '%s\0' "$@"; }; `+match[1]).Output()
		if err != nil {
			t.Fatalf("%s: %v", match[1], err)
		}
		if _, err := s.Control(t.Context(), strings.Split(strings.TrimSuffix(string(words), "\x00"), "\x00")...); err != nil {
			t.Fatalf("%s: %v", match[1], err)
		}
	}
}

// The command in the error fixes it.
func TestDeliveryLimit_TooLowIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("servers load rabbitmqctl: not in short runs")
	}
	t.Parallel()
	type policies = map[string]any
	for name, c := range map[string]struct {
		arguments amqp.Table
		policy    policies // nil: none
		operators policies
		deliver   int
		says3     []string // nil: it may be received from
		says4     []string
	}{
		"as NServiceBus makes it": {deliver: 50,
			says4: []string{"is 20", "RabbitMQ 4.0 says 20", "at least 1000", "'nsb.", ".delivery-limit", `'{"delivery-limit":100000}'`, "--apply-to quorum_queues"}},
		"without MaxDeliveries": {deliver: 0,
			says4: []string{"is 20", "at least 1000"}},
		"few deliveries": {deliver: 19,
			says4: []string{"is 20", "at least 1000"}},
		"as many as the limit": {deliver: 2_000, arguments: amqp.Table{"x-delivery-limit": 100_000}, policy: policies{"delivery-limit": 2_000},
			says3: []string{"is 2000", "delivered 2000 times"}, says4: []string{"is 2000", "delivered 2000 times"}},
		"very many deliveries": {deliver: 150_000, arguments: amqp.Table{"x-delivery-limit": 200_000}},
		"a policy": {deliver: 50, policy: policies{"delivery-limit": 30},
			says3: []string{"is 30", `the policy "P"`}, says4: []string{"is 30", `the policy "P"`, `{"delivery-limit":100000}`}},
		"a policy with much else": {deliver: 50, policy: policies{"max-length": 7, "dead-letter-exchange": "it's $mine", "delivery-limit": 30},
			says3: []string{"is 30"}, says4: []string{"is 30", `"max-length":7`}},
		"a policy about something else": {deliver: 50, policy: policies{"max-length": 7},
			says4: []string{"is 20", `{"delivery-limit":100000,"max-length":7}`, " P "}},
		"a policy that does": {deliver: 50, policy: policies{"delivery-limit": 1_000}},
		"a policy that does, but MaxDeliveries is off": {deliver: 0, policy: policies{"delivery-limit": 999},
			says3: []string{"is 999"}, says4: []string{"is 999"}},
		"a policy below the argument": {deliver: 50, arguments: amqp.Table{"x-delivery-limit": 100_000}, policy: policies{"delivery-limit": 3},
			says3: []string{"is 3", "policy"}, says4: []string{"is 3", "policy"}},
		"an operator policy": {deliver: 50, arguments: amqp.Table{"x-delivery-limit": 100_000}, operators: policies{"delivery-limit": 4},
			says3: []string{"is 4", `the operator policy "O"`}, says4: []string{"is 4", `the operator policy "O"`}},
		"both policies": {deliver: 50, policy: policies{"delivery-limit": 5}, operators: policies{"delivery-limit": 4},
			says3: []string{"is 4", `the operator policy "O" says 4`, `the policy "P" says 5`}, says4: []string{"is 4", `the operator policy "O" says 4`, `the policy "P" says 5`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, s *site) {
				const queue = "a.b+c (it's $mine)"
				arguments := amqp.Table{"x-queue-type": "quorum"}
				maps.Copy(arguments, c.arguments)
				s.queue(t, queue, arguments)
				pattern := "^a\\.b"
				if c.policy != nil {
					s.policy(t, "policies", "P", pattern, 5, c.policy)
					s.policy(t, "policies", "shadowed", "", 4, policies{"delivery-limit": 2})
					s.policy(t, "policies", "elsewhere", "^b", 9, policies{"delivery-limit": 1})
					s.policy(t, "policies", "for streams", pattern, 9, policies{"max-age": "1D"}) // which does not apply
				}
				if c.operators != nil {
					s.policy(t, "operator-policies", "O", pattern, 5, c.operators)
					s.policy(t, "operator-policies", "shadowed", "", 4, policies{"delivery-limit": 2})
					s.policy(t, "operator-policies", "elsewhere", "^b", 9, policies{"delivery-limit": 1})
				}
				transport := s.open(t, rabbitmq.Config{ManagementURL: s.ManagementURL()})
				err := receive(t, transport, queue, c.deliver)
				says := c.says3
				if s.limits() {
					says = c.says4
				}
				if says == nil {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				saysAll(t, err, append(says, "rabbitmq: open receiver", "a.b+c (it's $mine)")...)
				if err := transport.Check(t.Context(), core.Topology{InputQueue: queue, Queues: []string{queue}}); err != nil {
					t.Errorf("Check, which does not know MaxDeliveries: %v", err)
				}
				before := s.definition(t, c.policy != nil)
				s.applyFix(t, err)
				if err := receive(t, transport, queue, c.deliver); err != nil {
					t.Errorf("after the fix: %v", err)
				}
				if after := s.definition(t, c.policy != nil); before != after {
					t.Errorf("but for the limit, the policy was %s, and is %s", before, after)
				}
			})
		})
	}
}

// definition is the definition of the policy P without the limit.
func (s *site) definition(t testing.TB, exists bool) string {
	t.Helper()
	if !exists {
		return ""
	}
	text := s.manage(t, "GET", "/api/policies/"+s.vhost+"/P", nil)
	return regexp.MustCompile(`"delivery-limit":\d+,?|,"delivery-limit":\d+`).ReplaceAllString(text, "")
}

// Only another queue fixes it.
func TestDeliveryLimit_OfTheQueue(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.queue(t, "orders", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 3})
		for how, cfg := range map[string]rabbitmq.Config{
			"AMQP":           {},
			"management API": {ManagementURL: s.ManagementURL()},
			"unverified":     {UnverifiedDeliveryLimit: true}, // this one is known
		} {
			t.Run(how, func(t *testing.T) {
				transport := s.open(t, cfg)
				saysAll(t, receive(t, transport, "orders", 50), `"orders"`, "is 3", "x-delivery-limit is 3", "at least 1000", "delete_queue")
				saysAll(t, receive(t, transport, "orders", 2), "is 3")
			})
		}
		transport := s.open(t, rabbitmq.Config{})
		s.applyFix(t, receive(t, transport, "orders", 50))
		provision(t, transport, "orders")
		if err := receive(t, transport, "orders", 50); err != nil {
			t.Errorf("after the fix: %v", err)
		}
	})
}

// Since RabbitMQ 4.0 it means no limit. Before, the queue drops a message that is returned
// once.
func TestDeliveryLimit_Negative(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.queue(t, "orders", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": -1})
		for how, cfg := range map[string]rabbitmq.Config{"AMQP": {}, "management API": {ManagementURL: s.ManagementURL()}} {
			t.Run(how, func(t *testing.T) {
				transport := s.open(t, cfg)
				err := receive(t, transport, "orders", 50)
				switch {
				case !s.limits():
					saysAll(t, err, "is 0", "x-delivery-limit is -1")
				case err != nil:
					t.Error(err)
				}
				err = transport.Provision(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders"}})
				if s.limits() != (err == nil) {
					t.Errorf("Provision = %v", err)
				}
			})
		}
	})
}

// Policies may have set it.
func TestDeliveryLimit_Unknown(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		topology := core.Topology{InputQueue: "orders", Queues: []string{"orders"}}
		s.queue(t, "orders", amqp.Table{"x-queue-type": "quorum"})
		transport := s.open(t, rabbitmq.Config{})
		err := receive(t, transport, "orders", 50)
		if !s.limits() { // there is none by default
			if err != nil {
				t.Error(err)
			}
			if err := transport.Check(t.Context(), topology); err != nil {
				t.Error(err)
			}
			return
		}
		for _, err := range []error{err, transport.Check(t.Context(), topology)} {
			saysAll(t, err, `"orders"`, "no argument x-delivery-limit", "RabbitMQ 4.0 drops a message after 20 returns",
				"set Config.ManagementURL", "rabbitmqctl set_policy --vhost "+s.vhost, "'^orders$'", "set Config.UnverifiedDeliveryLimit")
		}
		if err := receive(t, s.open(t, rabbitmq.Config{UnverifiedDeliveryLimit: true}), "orders", 50); err != nil {
			t.Error(err)
		}
		managed := s.open(t, rabbitmq.Config{ManagementURL: s.ManagementURL()})
		if err := receive(t, managed, "orders", 50); err == nil {
			t.Error("it may be received from, with a limit of 20")
		}
		s.applyFix(t, err)
		if err := receive(t, managed, "orders", 50); err != nil {
			t.Error(err)
		}
	})
}

// The broker's text has 255 bytes at most. With a long name of the queue it ends before the
// value.
func TestDeliveryLimit_Unreadable(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		limited, unlimited := strings.Repeat("l", 199), strings.Repeat("u", 199)
		s.queue(t, limited, amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 3})
		s.queue(t, unlimited, amqp.Table{"x-queue-type": "quorum"})
		transport := s.open(t, rabbitmq.Config{})
		err := receive(t, transport, limited, 50)
		saysAll(t, err, limited, "AMQP does not tell it", "inequivalent arg", "Config.ManagementURL")
		s.applyFix(t, err)
		if err := receive(t, transport, unlimited, 50); s.limits() {
			saysAll(t, err, unlimited, "no argument x-delivery-limit")
		} else if err != nil {
			t.Error(err)
		}
		saysAll(t, receive(t, s.open(t, rabbitmq.Config{ManagementURL: s.ManagementURL()}), limited, 50), "is 3")
		// Where it is as Provision makes it, nothing has to be read.
		alike := strings.Repeat("a", 199)
		if err := receive(t, s.provisioned(t, rabbitmq.Config{}, alike), alike, 50); err != nil {
			t.Error(err)
		}
		s.queue(t, strings.Repeat("c", 199), nil)
		saysAll(t, receive(t, transport, strings.Repeat("c", 199), 50), "of another type than quorum")
	})
}

// Comparing a declaration takes the right to configure.
func TestDeliveryLimit_WithoutTheRightToAsk(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.provisioned(t, rabbitmq.Config{}, "orders")
		user := s.user(t, "user", "^$", "^$", ".*")
		err := receive(t, s.open(t, rabbitmq.Config{URLs: []string{user}}), "orders", 50)
		if s.limits() {
			saysAll(t, err, `"orders"`, "AMQP does not tell it", "ACCESS_REFUSED", "Config.ManagementURL", "Config.UnverifiedDeliveryLimit")
		} else if err != nil {
			t.Error(err)
		}
		for how, cfg := range map[string]rabbitmq.Config{
			"unverified":     {UnverifiedDeliveryLimit: true},
			"management API": {ManagementURL: s.ManagementURL()},
		} {
			cfg.URLs = []string{user}
			if err := receive(t, s.open(t, cfg), "orders", 50); err != nil {
				t.Errorf("%s: %v", how, err)
			}
		}
	})
}

// Not even where the queue is deleted at the same time.
func TestDeliveryLimit_ProbeCreatesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		before := s.catalogue(t)
		for _, kind := range []rabbitmq.QueueType{rabbitmq.Quorum, rabbitmq.Classic} {
			err := rabbitmq.Probe(t.Context(), s.open(t, rabbitmq.Config{QueueType: kind}), s.vhost, "orders")
			if !errors.Is(err, core.ErrQueueNotFound) {
				t.Errorf("%v: Probe = %v, want ErrQueueNotFound", kind, err)
			}
		}
		// Queues of other types are looked for on the way.
		for _, arguments := range []amqp.Table{{"x-queue-type": "quorum"}, {"x-queue-type": "classic"}, {}} {
			for _, durable := range []bool{true, false} {
				arguments["x-max-age"] = "1D"
				if _, err := s.channel(t).QueueDeclare("orders", durable, !durable, false, false, arguments); err == nil {
					t.Errorf("the broker creates a queue of %v", arguments)
				}
			}
		}
		sameCatalogue(t, s.catalogue(t), before)
	})
}

func TestManagement_Errors(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.provisioned(t, rabbitmq.Config{}, "orders")
		right, err := url.Parse(s.ManagementURL())
		if err != nil {
			t.Fatal(err)
		}
		as := func(user, password string) string {
			u := *right
			u.User = url.UserPassword(user, password)
			return u.String()
		}
		s.user(t, "untagged", ".*", ".*", ".*")
		s.manage(t, "PUT", "/api/users/tagged."+s.vhost, map[string]string{"password": "s3cret", "tags": "management"})
		t.Cleanup(func() { s.deleteUser(t, "tagged."+s.vhost) })
		page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path[1 : strings.Index(r.URL.Path[1:], "/")+1] {
			case "page":
				_, _ = io.WriteString(w, "<html>")
			case "moved":
				http.Redirect(w, r, "/elsewhere", http.StatusFound)
			case "down":
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				_, _ = io.WriteString(w, `{"items":[]}`)
			}
		}))
		defer page.Close()
		with := func(path string) string { return strings.Replace(page.URL, "http://", "http://u:s3cret@", 1) + path }
		for name, c := range map[string]struct {
			url  string
			says []string
		}{
			"wrong password":         {as(testserver.User, "s3cret"), []string{"401", `"reprise"`, "password"}},
			"no tag":                 {as("untagged."+s.vhost, "untagged."+s.vhost), []string{"401", "set_user_tags", "untagged"}},
			"no rights in the vhost": {as("tagged."+s.vhost, "s3cret"), []string{"401", "set_permissions", s.vhost}},
			"nobody there":           {"http://u:s3cret@127.0.0.1:1", []string{"cannot be reached", "127.0.0.1:1", "refused"}},
			"the port of AMQP":       {"http://u:s3cret@" + s.Addr(), []string{"cannot be reached"}},
			"no TLS":                 {strings.Replace(with(""), "http:", "https:", 1), []string{"cannot be reached", "HTTP"}},
			"a page":                 {with("/page"), []string{"does not answer like the management API"}},
			"moved":                  {with("/moved"), []string{"302"}},
			"down":                   {with("/down"), []string{"503"}},
			"another broker":         {with("/other"), []string{"does not know it", "same broker"}},
			"another path":           {s.ManagementURL() + "/elsewhere", []string{"404"}},
		} {
			t.Run(name, func(t *testing.T) {
				transport := s.open(t, rabbitmq.Config{ManagementURL: c.url})
				err := transport.Check(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders"}})
				saysAll(t, err, append(c.says, "Config.ManagementURL")...)
				for _, secret := range []string{"s3cret", testserver.Password, url.QueryEscape(testserver.Password)} {
					if err != nil && strings.Contains(err.Error(), secret) {
						t.Errorf("the error tells the password: %v", err)
					}
				}
				if err != nil && strings.Contains(err.Error(), "disable_stats") {
					t.Errorf("the error tells the whole URL: %v", err)
				}
				cfg := rabbitmq.Config{ManagementURL: c.url, UnverifiedDeliveryLimit: true}
				if err := receive(t, s.open(t, cfg), "orders", 50); err != nil {
					t.Errorf("without verification: %v", err)
				}
			})
		}
	})
}

// A management API that cannot be reached is an outage.
func TestManagement_OutageEnds(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.provisioned(t, rabbitmq.Config{}, "orders")
		right, err := url.Parse(s.ManagementURL())
		if err != nil {
			t.Fatal(err)
		}
		p, err := proxy.New(right.Host)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		if err := p.Refuse(); err != nil {
			t.Fatal(err)
		}
		transport := s.open(t, rabbitmq.Config{ManagementURL: testserver.Via(s.ManagementURL(), p.Addr())})
		told := make(chan error, 100)
		opened := make(chan error, 1)
		go func() {
			_, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, ConnectionChanged: outages(told).ConnectionChanged})
			opened <- err
		}()
		saysAll(t, <-told, "management API", "cannot be reached")
		if err := p.Accept(); err != nil {
			t.Fatal(err)
		}
		if err := <-opened; err != nil {
			t.Error(err)
		}
	})
}

// A management API that is busy is asked again.
func TestManagement_Busy(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.provisioned(t, rabbitmq.Config{}, "orders")
		right, err := url.Parse(s.ManagementURL())
		if err != nil {
			t.Fatal(err)
		}
		forward := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: right.Scheme, Host: right.Host})
		var answers []int
		busy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if len(answers) == 0 {
				forward.ServeHTTP(w, r)
				return
			}
			w.WriteHeader(answers[0])
			answers = answers[1:]
		}))
		defer busy.Close()
		through := testserver.Via(s.ManagementURL(), busy.Listener.Addr().String())
		transport := s.open(t, rabbitmq.Config{ManagementURL: through})
		for name, ask := range map[string]func() error{
			"OpenReceiver": func() error { return receive(t, transport, "orders", 50) },
			"Check": func() error {
				return transport.Check(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders"}})
			},
		} {
			answers = []int{http.StatusServiceUnavailable, http.StatusTooManyRequests, http.StatusInternalServerError}
			if err := ask(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if len(answers) > 0 {
				t.Errorf("%s did not ask again after %d", name, answers[0])
			}
		}
	})
}

// outages receives the errors of outages.
type outages chan<- error

func (o outages) ConnectionChanged(change core.ConnectionChange) {
	if !change.Connected {
		select {
		case o <- change.Err:
		default:
		}
	}
}

// The name of a virtual host is part of a path.
func TestManagement_AnyVHost(t *testing.T) {
	t.Parallel()
	for _, release := range rabbitmq.Releases() {
		on := rabbitmq.SharedServer(t, release)
		for _, vhost := range []string{"/", "a/b c?d#e%2Fé", on.NewVHost(t) + "/orders"} {
			t.Run(on.Version()+" "+vhost, func(t *testing.T) {
				s := &site{Server: on, vhost: vhost}
				if err := on.CreateVHost(t.Context(), vhost); err != nil {
					t.Fatal(err)
				}
				s.provisioned(t, rabbitmq.Config{}, "any/queue ^.*$ (it's $mine)")
				if err := receive(t, s.open(t, rabbitmq.Config{ManagementURL: s.ManagementURL()}), "any/queue ^.*$ (it's $mine)", 50); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
