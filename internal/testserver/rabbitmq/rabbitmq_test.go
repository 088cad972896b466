//go:build darwin || linux

package rabbitmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// inEachRelease runs a test once for each, in short runs for the one that starts faster.
func inEachRelease(t *testing.T, test func(*testing.T, Release)) {
	releases := []Release{V3, V4}
	if testing.Short() {
		releases = releases[1:]
	}
	for _, release := range releases {
		t.Run(release.String(), func(t *testing.T) {
			t.Parallel()
			test(t, release)
		})
	}
}

// notInShortRuns skips a test that starts servers: one that is started, used and stopped is
// enough there.
func notInShortRuns(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts servers: not in short runs")
	}
}

// manage is Manage for a test, and reads the answer into a value unless that is nil.
func manage(t *testing.T, s *Server, method, path, body string, answer any) {
	t.Helper()
	text, err := s.Manage(t.Context(), method, path, body)
	if err != nil {
		t.Fatal(err)
	}
	if answer == nil {
		return
	}
	if err := json.Unmarshal([]byte(text), answer); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
}

// queues are the names of the durable queues that tests declare, and their types.
var queues = map[string]string{"of quorum": "quorum", "classic": "classic"}

// publish declares the queues and sends a persistent message to each.
func publish(t *testing.T, s *Server, vhost, text string) {
	t.Helper()
	for name, kind := range queues {
		path := "/api/queues/" + url.PathEscape(vhost) + "/" + url.PathEscape(name)
		manage(t, s, "PUT", path, fmt.Sprintf(`{"durable":true,"arguments":{"x-queue-type":%q}}`, kind), nil)
		var sent struct{ Routed bool }
		manage(t, s, "POST", "/api/exchanges/"+url.PathEscape(vhost)+"/amq.default/publish",
			fmt.Sprintf(`{"properties":{"delivery_mode":2},"routing_key":%q,"payload":%q,"payload_encoding":"string"}`, name, text), &sent)
		if !sent.Routed {
			t.Fatalf("queue %q did not get its message", name)
		}
	}
}

// check fails unless each queue has one message, which it gets back.
func check(t *testing.T, s *Server, vhost, text, after string) {
	t.Helper()
	for name := range queues {
		var messages []struct{ Payload string }
		manage(t, s, "POST", "/api/queues/"+url.PathEscape(vhost)+"/"+url.PathEscape(name)+"/get",
			`{"count":10,"ackmode":"ack_requeue_true","encoding":"auto"}`, &messages)
		if len(messages) != 1 || messages[0].Payload != text {
			t.Errorf("after %s queue %q has %v, want the message %q", after, name, messages, text)
		}
	}
}

// lateQueues are the names of those that are declared right before the server is
// killed.
var lateQueues = []string{"late1", "late2", "late3", "late4", "late5"}

func declare(t *testing.T, s *Server, vhost string) {
	t.Helper()
	for _, name := range lateQueues {
		manage(t, s, "PUT", "/api/queues/"+vhost+"/"+name, `{"durable":true,"arguments":{"x-queue-type":"classic"}}`, nil)
	}
}

func TestRestart_KeepsConfirmedMessages(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	inEachRelease(t, func(t *testing.T, release Release) {
		s := StartFor(t, Config{Release: release})
		addr, management, vhost := s.Addr(), s.ManagementURL(), s.NewVHost(t)
		publish(t, s, vhost, "keep me")
		declare(t, s, vhost)
		ends := []struct {
			how string
			do  func() error
		}{
			{"Kill, twice, and Shutdown", func() error { return errors.Join(s.Kill(), s.Kill(), s.Shutdown()) }},
			{"Shutdown, twice", func() error { return errors.Join(s.Shutdown(), s.Shutdown()) }},
		}
		if release == V3 {
			ends = ends[:1] // shutting down is a signal, to both releases the same
		}
		for _, end := range ends {
			pids := processes(t, s)
			if err := end.do(); err != nil {
				t.Fatalf("%s: %v", end.how, err)
			}
			awaitEnd(t, pids)
			if c, err := net.Dial("tcp", addr); err == nil {
				c.Close()
				t.Errorf("after %s something still listens", end.how)
			}
			if err := s.Restart(); err != nil {
				t.Fatalf("restart after %s: %v", end.how, err)
			}
			check(t, s, vhost, "keep me", end.how)
			for _, name := range lateQueues {
				manage(t, s, "GET", "/api/queues/"+vhost+"/"+name, "", nil)
			}
		}
		if s.Addr() != addr || s.ManagementURL() != management {
			t.Errorf("the addresses are %s and %s after restarts, were %s and %s", s.Addr(), s.ManagementURL(), addr, management)
		}
		if release == V4 {
			stopsFor(t, s, (*Server).Shutdown)
		}
	})
}

func TestStart_ServerIsReady(t *testing.T) {
	t.Parallel()
	inEachRelease(t, func(t *testing.T, release Release) {
		s := StartFor(t, Config{Release: release})
		if want := fmt.Sprintf("%d.", release.major()); !strings.HasPrefix(s.Version(), want) {
			t.Errorf("the version is %s, want %s...", s.Version(), want)
		}
		t.Run("users", func(t *testing.T) { testUsers(t, s) })
		t.Run("vhosts", func(t *testing.T) { testVHosts(t, s) })
		t.Run("rabbitmqctl", func(t *testing.T) { testCtl(t, s) })
		t.Run("rabbitmqctl in the server", func(t *testing.T) { testControl(t, s) })
		t.Run("Eval", func(t *testing.T) { testEval(t, s) })
		t.Run("Freeze", func(t *testing.T) { testFreeze(t, s) })
		t.Run("modules", func(t *testing.T) { testModules(t, s) })
		if strings.Contains(s.Log(), Password) {
			t.Error("the log has the password")
		}
		// Somebody else ends it.
		if err := errors.Join(s.life.Running().Kill(), s.Stop()); err != nil {
			t.Error(err)
		}
	})
}

func testUsers(t *testing.T, s *Server) {
	for _, c := range []struct {
		user     *url.Userinfo
		path     string
		want     int
		contains string
	}{
		{url.UserPassword(User, Password), "/api/whoami", http.StatusOK, `"monitoring"`},
		{url.UserPassword(User, Password), "/api/users", http.StatusUnauthorized, "administrator"},
		{url.UserPassword(User, "wrong"), "/api/whoami", http.StatusUnauthorized, ""},
		{url.UserPassword(guest, guest), "/api/whoami", http.StatusOK, `"administrator"`},
	} {
		u, err := url.Parse(s.ManagementURL() + c.path)
		if err != nil {
			t.Fatal(err)
		}
		if c.user.String() == url.UserPassword(User, Password).String() && u.User.String() != c.user.String() {
			t.Errorf("ManagementURL is for %v, want %v", u.User, c.user)
		}
		u.User = c.user
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := web.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var body strings.Builder
		if err := errors.Join(response.Write(&body), response.Body.Close()); err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != c.want || !strings.Contains(body.String(), c.contains) {
			t.Errorf("%s as %s is %s, want %d and %s", c.path, c.user.Username(), &body, c.want, c.contains)
		}
	}
}

func testVHosts(t *testing.T, s *Server) {
	var names []string
	t.Run("two", func(t *testing.T) {
		names = []string{s.NewVHost(t), s.NewVHost(t)}
		if names[0] == names[1] {
			t.Errorf("two vhosts are called %s", names[0])
		}
		for _, vhost := range append(names, "/") {
			for _, user := range []string{User, guest} {
				var may struct{ Configure, Write, Read string }
				manage(t, s, "GET", "/api/permissions/"+url.PathEscape(vhost)+"/"+user, "", &may)
				if may.Configure != ".*" || may.Write != ".*" || may.Read != ".*" {
					t.Errorf("%s may do %v in %s, want everything", user, may, vhost)
				}
			}
		}
		publish(t, s, names[0], "gone with its vhost")
	})
	var left []struct{ Name string }
	manage(t, s, "GET", "/api/vhosts?columns=name", "", &left)
	if len(left) != 1 || left[0].Name != "/" {
		t.Errorf("after the test the vhosts are %v, want only /", left)
	}
	if err := s.CreateVHost(t.Context(), "a b/c"); err != nil {
		t.Fatal(err)
	}
	publish(t, s, "a b/c", "x")
	check(t, s, "a b/c", "x", "publishing")
}

func testCtl(t *testing.T, s *Server) {
	if got, err := s.Ctl(t.Context(), "authenticate_user", User, Password); err != nil {
		t.Errorf("authenticate_user: %s, %v", got, err)
	}
	if _, err := s.Ctl(t.Context(), "authenticate_user", User, "wr0ng"); err == nil || strings.Contains(err.Error(), "wr0ng") {
		t.Errorf("authenticate_user with a wrong password: %v, want an error without it", err)
	}
	if got, err := s.Ctl(t.Context(), "eval", "1 + 1."); err != nil || got != "2" {
		t.Errorf("eval = %q, %v; want 2", got, err)
	}
	errStop := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errStop)
	if _, err := s.Ctl(ctx, "list_users"); !errors.Is(err, errStop) {
		t.Errorf("Ctl returned %v after its context had ended because of %v", err, errStop)
	}
	if _, err := s.Manage(ctx, "GET", "/api/overview", ""); !errors.Is(err, errStop) {
		t.Errorf("Manage returned %v after its context had ended", err)
	}
}

// Modules of RabbitMQ and of Erlang are found in one directory. RabbitMQ puts the directories of
// enabled plugins before it.
func testModules(t *testing.T, s *Server) {
	for _, module := range []string{"rabbit_fifo", "ra_server", "httpc"} {
		if got, want := eval(t, s, "code:which("+module+")."), "/"+linkedModules+"/"+module+".beam"; !strings.Contains(got, want) {
			t.Errorf("the module %s is %s, want ...%s", module, got, want)
		}
	}
}

func TestStart_TwoServersAtOnce(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	a, b := StartFor(t, Config{Release: V4}), StartFor(t, Config{Release: V4, AllProcessors: true})
	for name, c := range map[string]struct {
		server *Server
		want   string
	}{
		"by default":        {a, "1"},
		"of all processors": {b, eval(t, b, "erlang:system_info(logical_processors_available).")},
	} {
		if got := eval(t, c.server, "erlang:system_info(schedulers)."); got != c.want {
			t.Errorf("the server has %s schedulers %s, want %s", got, name, c.want)
		}
	}
	publish(t, a, "/", "a")
	publish(t, b, "/", "b")
	stopsFor(t, b, func(*Server) error {
		err := b.Kill()
		check(t, a, "/", "a", "the other one's end")
		return err
	})
	check(t, a, "/", "a", "the other one's end for good")
	if _, err := a.Ctl(t.Context(), "list_queues"); err != nil {
		t.Error(err)
	}
	stopsFor(t, a, func(*Server) error { return nil })
}

func TestLeftovers_ServerInUseIsStopped(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	s := StartFor(t, Config{Release: V3})
	stopsFor(t, s, func(s *Server) error {
		killLeftovers(s.dir.Path())
		<-s.life.Running().Exited()
		<-s.names.Exited()
		return s.Kill()
	})
}

// stopsFor stops a server for good, after something was done to it, and checks that nothing
// of it is left.
func stopsFor(t *testing.T, s *Server, before func(*Server) error) {
	t.Helper()
	pids := append(processes(t, s), s.names.ID())
	vhost := ""
	t.Run("a test with a vhost", func(t *testing.T) {
		vhost = s.NewVHost(t)
		if err := before(s); err != nil {
			t.Error(err)
		}
	})
	for range 2 { // the second time changes nothing
		if err := s.Stop(); err != nil {
			t.Error(err)
		}
	}
	awaitEnd(t, pids)
	if exists(s.dir.Path()) {
		t.Errorf("%s was left behind", s.dir.Path())
	}
	if err := s.Restart(); err == nil {
		t.Error("Restart after Stop returned no error")
	}
	if err := s.Kill(); err != nil {
		t.Errorf("Kill after Stop: %v", err)
	}
	if _, err := s.Manage(t.Context(), "GET", "/api/vhosts/"+vhost, ""); err == nil {
		t.Error("Manage after Stop returned no error")
	}
}

func TestURL_OfEachListener(t *testing.T) {
	t.Parallel()
	const password = "s3cret%2Fpass%3Fword%4010%25"
	for _, c := range [][2]string{
		{amqpURL("amqp", url.UserPassword(guest, guest), "127.0.0.1:1", "/"), "amqp://guest:guest@127.0.0.1:1/%2F"},
		{amqpURL("amqps", url.UserPassword(User, Password), "127.0.0.1:1", "a b/c%"), "amqps://reprise:" + password + "@127.0.0.1:1/a%20b%2Fc%25"},
		{Via("amqp://reprise:"+password+"@127.0.0.1:1/a%2Fb", "127.0.0.1:2"), "amqp://reprise:" + password + "@127.0.0.1:2/a%2Fb"},
		{Via("http://reprise:"+password+"@127.0.0.1:1", "127.0.0.1:2"), "http://reprise:" + password + "@127.0.0.1:2"},
	} {
		if c[0] != c[1] {
			t.Errorf("got %s, want %s", c[0], c[1])
		}
	}
	for name, f := range map[string]func(){
		"Via of no URL":      func() { Via("amqp://%", "127.0.0.1:2") },
		"Via to no address":  func() { Via("amqp://127.0.0.1:1", "127.0.0.1") },
		"TLSURL without TLS": func() { (&Server{}).TLSURL("/") },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s did not panic", name)
				}
			}()
			f()
		}()
	}
}
