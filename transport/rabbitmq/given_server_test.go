package rabbitmq_test

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/conformance"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/given"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// The tests TestConformance... run on a RabbitMQ that the environment names, instead of
// servers of their own: in virtual hosts of their own, if the user of the management API is
// an administrator, or else in the one that the URL names. What they make there is deleted
// at their end.
const (
	// givenVariable names the server, the virtual host, and a user with all permissions in
	// it.
	givenVariable = "REPRISE_TEST_RABBITMQ_URL"
	// managementVariable names the server's management API. Without it connections
	// are not counted.
	managementVariable = "REPRISE_TEST_RABBITMQ_MANAGEMENT_URL"
)

// onGiven ends the names of harnesses on the given server: what they can try differs, so
// that their reports are others, too.
const onGiven = ", given server"

// givenServer is the server that givenVariable names, and what a run has made on it.
type givenServer struct {
	url        *url.URL
	management *management // nil: there is none
	counts     bool        // the management API tells the connections
	vhosts     bool        // each test has a separate virtual host
	secrets    []string
	run        string // begins the names of the run's virtual hosts and connections
	about      string // the server, for people
	cleaner    *given.Cleaner
	brokers    atomic.Int64
}

func isGiven() bool { return os.Getenv(givenVariable) != "" }

// givenRabbitMQ returns the server that the environment names, once it is known that the
// suite can run on it.
var givenRabbitMQ = sync.OnceValues(func() (*givenServer, error) {
	s, err := openGiven(os.Getenv(givenVariable), os.Getenv(managementVariable))
	if err != nil {
		return nil, err
	}
	openedGiven.Store(s)
	return s, nil
})

// openedGiven is the result of givenRabbitMQ.
var openedGiven atomic.Pointer[givenServer]

// leaveGiven removes the things that the run has made. It ends the process if something is left.
func leaveGiven() {
	s := openedGiven.Load()
	if s == nil {
		return // nothing was made
	}
	if err := s.cleaner.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("%s: all that the run has made on %s is removed\n", givenVariable, s.about)
}

// openGiven reads the URLs, checks the server and starts the process that cleans up. No
// error has a part of a password.
func openGiven(text, managementText string) (*givenServer, error) {
	u, err := transport.ReadURL(givenVariable, text, "amqp:// or amqps://")
	if err != nil {
		return nil, err
	}
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	s := &givenServer{url: u, run: given.Prefix + hex.EncodeToString(id[:])}
	if password, ok := u.User.Password(); ok && password != "" && password != "guest" { // which a user name is, too
		s.secrets = append(s.secrets, password)
	}
	if err := s.check(text); err != nil {
		return nil, fmt.Errorf("%s: %w", givenVariable, err)
	}
	if managementText != "" {
		if err := s.manage(managementText); err != nil {
			return nil, fmt.Errorf("%s: %w", managementVariable, err)
		}
	}
	if !s.vhosts {
		if err := s.checkVHost(text); err != nil {
			return nil, fmt.Errorf("%s: %w", givenVariable, err)
		}
	}
	s.cleaner, err = given.StartCleaner()
	return s, err
}

// check connects as the adapter does, which refuses a server that is too old.
func (s *givenServer) check(text string) error {
	probe, err := rabbitmq.New(rabbitmq.Config{URLs: []string{text}})
	if err != nil {
		return errors.New(strings.ReplaceAll(err.Error(), "Config.URLs[0]", "the URL"))
	}
	defer func() { _ = probe.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := probe.Check(ctx, core.Topology{}); err != nil {
		return fmt.Errorf("connect to the server: %w", err)
	}
	return s.using(text, func(conn *amqp.Connection) error {
		version, _ := conn.Properties["version"].(string)
		s.about = fmt.Sprintf("RabbitMQ %s as %s", version, userOf(s.url))
		return nil
	})
}

// checkVHost returns the reason why the suite cannot run in the virtual host of the URL.
func (s *givenServer) checkVHost(text string) error {
	vhost := vhostOf(s.url)
	const hint = "give it a separate virtual host (rabbitmqctl add_vhost NAME), or set " + managementVariable + " to the URL of an administrator, for whom it makes one"
	return s.using(text, func(conn *amqp.Connection) error {
		ch, err := conn.Channel()
		if err != nil {
			return err
		}
		name := s.run + "_probe"
		defer func() {
			_ = s.using(text, func(conn *amqp.Connection) error { return deleteByAMQP(conn, []string{name}) })
		}()
		_, err = ch.QueueDeclare(name, true, false, false, false, nil)
		if err == nil {
			err = ch.ExchangeDeclare(name, "fanout", true, false, false, false, nil)
		}
		if err == nil {
			err = ch.QueueBind(name, "", name, false, nil)
		}
		if err == nil {
			_, err = ch.QueuePurge(name, false)
		}
		if refused := new(amqp.Error); errors.As(err, &refused) && refused.Code == amqp.AccessRefused {
			return fmt.Errorf("the user %s lacks permissions in the virtual host %q: %w; to fix: rabbitmqctl set_permissions -p %q %s '.*' '.*' '.*'", userOf(s.url), vhost, err, vhost, userOf(s.url))
		} else if err != nil {
			return err
		}
		for _, exchange := range []string{"nsb.v2.delay-delivery", "reprise.delay-delivery"} {
			if ch, err = conn.Channel(); err != nil {
				return err
			}
			if ch.ExchangeDeclarePassive(exchange, "topic", true, false, false, false, nil) == nil {
				return fmt.Errorf("the virtual host %q is in use: it has the exchange %s of delayed messages, which the suite would share with others: %s", vhost, exchange, hint)
			}
		}
		return nil
	})
}

// using lends a connection past the transports.
func (s *givenServer) using(text string, use func(*amqp.Connection) error) error {
	conn, err := amqp.DialConfig(text, amqp.Config{Properties: amqp.Table{"connection_name": s.run + " tests"}})
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = conn.Close() }()
	return use(conn)
}

func userOf(u *url.URL) string {
	if name := u.User.Username(); name != "" {
		return name
	}
	return "guest"
}

func vhostOf(u *url.URL) string {
	if name := strings.TrimPrefix(u.Path, "/"); name != "" {
		return name
	}
	return "/"
}

// management is the management API of the given server.
type management struct {
	base *url.URL
	user *url.Userinfo
}

func readManagement(text string) (*management, error) {
	u, err := transport.ReadURL("the URL", text, "http:// or https://")
	switch {
	case err != nil:
		return nil, err
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, fmt.Errorf("the URL has the scheme %q; use http://user:password@host:15672", u.Scheme)
	case u.User == nil:
		return nil, errors.New("the URL names no user; write it as http://user:password@host:15672")
	}
	m := &management{base: u, user: u.User}
	u.User, u.RawQuery = nil, ""
	return m, nil
}

// ask sends a request. The path begins with /api and has its parts escaped.
func (m *management) ask(ctx context.Context, method, path, body string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(m.base.String(), "/")+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	password, _ := m.user.Password()
	request.SetBasicAuth(m.user.Username(), password)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err // with the URL, which has neither user nor password
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", method, path, err)
	case response.StatusCode == http.StatusUnauthorized:
		return fmt.Errorf("%s %s: %s: the user %s or its password is not the right one, or it has none of the tags management, monitoring and administrator; to fix: rabbitmqctl set_user_tags %s monitoring",
			method, path, response.Status, m.user.Username(), m.user.Username())
	case response.StatusCode/100 != 2:
		return fmt.Errorf("%s %s: %s: %.300s", method, path, response.Status, answer)
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("%s %s: the answer is not that of a management API: %w", method, path, err)
	}
	return nil
}

// manage finds out the rights of the user of the management API.
func (s *givenServer) manage(text string) error {
	m, err := readManagement(text)
	if err != nil {
		return err
	}
	s.management = m
	if password, ok := m.user.Password(); ok && password != "" && password != "guest" && !slices.Contains(s.secrets, password) {
		s.secrets = append(s.secrets, password)
	}
	var me struct{ Tags any } // a list, or, in older versions, a text
	if err := m.ask(context.Background(), http.MethodGet, "/api/whoami", "", &me); err != nil {
		return err
	}
	s.vhosts = strings.Contains(fmt.Sprint(me.Tags), "administrator")
	// A user who sees no connections would have the suite count none.
	return s.using(s.url.String(), func(*amqp.Connection) error {
		for awaitTrue := time.Now().Add(20 * time.Second); ; time.Sleep(time.Second) {
			n, err := s.count(context.Background(), s.run+" tests")
			if err != nil {
				return err
			}
			if s.counts = n > 0; s.counts || time.Now().After(awaitTrue) {
				return nil
			}
		}
	})
}

// count returns how many connections have a name that begins so.
func (s *givenServer) count(ctx context.Context, name string) (n int, err error) {
	var list []struct {
		Properties struct {
			Name string `json:"connection_name"`
		} `json:"client_properties"`
	}
	if err := s.management.ask(ctx, http.MethodGet, "/api/connections", "", &list); err != nil {
		return 0, err
	}
	for _, c := range list {
		if strings.HasPrefix(c.Properties.Name, name) {
			n++
		}
	}
	return n, nil
}

// The beginnings of the cleaner's notes.
const (
	noteVHost = "vhost "
	noteName  = "name " // of a queue, an exchange, or both
)

// givenBroker returns a virtual host on the given server, and a network before it where
// that is possible.
func givenBroker(t *testing.T) *broker {
	t.Helper()
	s, err := givenRabbitMQ()
	if err != nil {
		t.Fatal(err)
	}
	b := &broker{given: s, name: fmt.Sprintf("%s_%d", s.run, s.brokers.Add(1)), vhost: vhostOf(s.url)}
	u := *s.url
	if s.vhosts {
		b.vhost = b.name
		s.newVHost(t, b.vhost)
		u.Path, u.RawPath = "/"+b.vhost, ""
	}
	b.direct = u.String()
	b.url = b.direct
	fmt.Printf("%s: on %s, in the virtual host %s\n", t.Name(), s.about, b.vhost)
	if network, via, err := viaNetwork(t, &u); err == nil {
		b.network, b.url = network, via
	} else {
		fmt.Printf("%s: cases about outages are not run, because nothing can be put between the transports and the server: %v\n", t.Name(), err)
	}
	return b
}

func (s *givenServer) newVHost(t *testing.T, name string) {
	t.Helper()
	s.cleaner.Note(noteVHost + name)
	if err := s.management.ask(t.Context(), http.MethodPut, "/api/vhosts/"+name, "", nil); err != nil {
		t.Fatalf("create the virtual host %s: %v", name, err)
	}
	path := "/api/permissions/" + name + "/" + url.PathEscape(userOf(s.url))
	if err := s.management.ask(t.Context(), http.MethodPut, path, `{"configure":".*","write":".*","read":".*"}`, nil); err != nil {
		t.Fatalf("give %s permissions in the virtual host %s: %v", userOf(s.url), name, err)
	}
}

// viaNetwork returns a network before the server, and the URL that leads through it, if
// the server can be reached that way. Its certificate is still checked by its own name.
func viaNetwork(t *testing.T, u *url.URL) (*given.Network, string, error) {
	t.Helper()
	via, options, port := *u, u.Query(), u.Port()
	if port == "" {
		port = "5672"
		if u.Scheme == "amqps" {
			port = "5671"
		}
	}
	host := u.Hostname()
	if host == "" {
		host = "localhost"
	}
	const serverName = "server_name_indication"
	if u.Scheme == "amqps" && options.Get(serverName) == "" {
		options.Set(serverName, host)
		via.RawQuery = options.Encode()
	}
	network := given.NewNetwork(t, net.JoinHostPort(host, port))
	via.Host = network.Proxy.Addr()
	probe, err := rabbitmq.New(rabbitmq.Config{URLs: []string{via.String()}})
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = probe.Close(context.Background()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return network, via.String(), probe.Check(ctx, core.Topology{})
}

// adapt makes a harness for a separate server one for the given server.
func (b *broker) adapt(h conformance.Harness) conformance.Harness {
	h.Broker, h.Network, h.Connections = nil, nil, nil
	if b.network != nil {
		h.Network = b.network
	}
	h.Secrets = b.given.secrets
	if b.given.counts {
		h.Connections = func(t testing.TB) int {
			n, err := b.given.count(t.Context(), b.name)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	if b.given.vhosts {
		return h
	}
	// In a virtual host that stays, all names are noted.
	open, openLimited, mismatch := h.Open, h.OpenLimited, h.Mismatch
	h.Open = func(t testing.TB) core.Transport { return b.given.noting(open(t)) }
	h.OpenLimited = func(t testing.TB, maxMessageBytes int) core.Transport {
		return b.given.noting(openLimited(t, maxMessageBytes))
	}
	h.Mismatch = func(t testing.TB) (string, [2]string) {
		queue, values := mismatch(t)
		b.given.note(queue)
		return queue, values
	}
	return h
}

// noting returns a transport that notes the things that it makes before it makes them.
func (s *givenServer) noting(t core.Transport) core.Transport {
	return &notingTransport{t.(*rabbitmq.Transport), s}
}

type notingTransport struct {
	*rabbitmq.Transport
	server *givenServer
}

func (t *notingTransport) Provision(ctx context.Context, topology core.Topology) error {
	t.server.note(topology.Queues...)
	return t.Transport.Provision(ctx, topology)
}

func (t *notingTransport) Subscribe(ctx context.Context, queue string, topics ...string) error {
	t.server.noteTopics(topics...)
	return t.Transport.Subscribe(ctx, queue, topics...)
}

func (t *notingTransport) Unsubscribe(ctx context.Context, queue string, topics ...string) error {
	t.server.noteTopics(topics...)
	return t.Transport.Unsubscribe(ctx, queue, topics...)
}

func (t *notingTransport) Send(ctx context.Context, msgs ...core.Outgoing) error {
	for i := range msgs {
		if msgs[i].Topic != "" {
			t.server.noteTopics(msgs[i].Topic)
		}
	}
	return t.Transport.Send(ctx, msgs...)
}

// note notes names, but for those that the broker would refuse.
func (s *givenServer) note(names ...string) {
	for _, name := range names {
		if name != "" && len(name) < 256 && !strings.HasPrefix(name, "amq.") && !strings.ContainsAny(name, "\r\n") {
			s.cleaner.Note(noteName + name)
		}
	}
}

func (s *givenServer) noteTopics(topics ...string) {
	for _, topic := range topics {
		s.note("topic:" + topic)
	}
}

// removeGiven deletes the virtual hosts, queues and exchanges of a run. It is called in the
// process that cleans up, when the transports' process has ended.
func removeGiven(notes []string) error {
	var errs []error
	var names []string
	for _, note := range notes {
		if name, ok := strings.CutPrefix(note, noteName); ok {
			names = append(names, name)
		}
		vhost, ok := strings.CutPrefix(note, noteVHost)
		if !ok {
			continue
		}
		m, err := readManagement(os.Getenv(managementVariable))
		if err == nil {
			err = m.ask(context.Background(), http.MethodDelete, "/api/vhosts/"+vhost, "", nil)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: the virtual host %s is left behind: %w; to fix: rabbitmqctl delete_vhost %s", givenVariable, vhost, err, vhost))
		}
	}
	if len(names) == 0 {
		return errors.Join(errs...)
	}
	conn, err := amqp.Dial(os.Getenv(givenVariable))
	if err == nil {
		err = deleteByAMQP(conn, slices.Concat(names, sharedNames()))
		_ = conn.Close()
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("%s: queues and exchanges are left behind whose names begin with conf-, topic:conf-, mismatch-, nsb.v2.delay- and reprise.: %w", givenVariable, err))
	}
	return errors.Join(errs...)
}

// sharedNames are those of the topology of delayed messages, which was not there before.
func sharedNames() []string {
	names := []string{"nsb.v2.delay-delivery", "reprise.delay-delivery", "reprise.unroutable", "reprise.undelivered"}
	for level := range 28 {
		names = append(names, fmt.Sprintf("nsb.v2.delay-level-%02d", level))
	}
	return names
}

// deleteByAMQP deletes the queues and the exchanges of the names. The broker does not mind
// that there is none.
func deleteByAMQP(conn *amqp.Connection, names []string) error {
	var errs []error
	for _, name := range names {
		ch, err := conn.Channel()
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		_, err = ch.QueueDelete(name, false, false, false)
		if err == nil {
			err = ch.ExchangeDelete(name, false, false)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%q: %w", name, err))
			continue // the channel is closed
		}
		_ = ch.Close()
	}
	return errors.Join(errs...)
}
