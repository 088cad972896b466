//go:build darwin || linux

package rabbitmq

import (
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"
)

// Tests of transport/rabbitmq have both releases with a plugin, settings and TLS.
func TestStart_Configuration(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	t.Run(V4.String(), func(t *testing.T) {
		s := StartFor(t, Config{
			Release: V4,
			Plugins: []string{"rabbitmq_consistent_hash_exchange"},
			Settings: map[string]string{
				"vm_memory_high_watermark.absolute": "1MB",
				"listeners.tcp.default":             "1",
				"management.tcp.port":               "1",
			},
			TLS: true,
		})
		manage(t, s, "PUT", "/api/exchanges/%2F/hash", `{"type":"x-consistent-hash"}`, nil)
		awaiting(t, "the memory alarm", func() bool {
			_, err := s.Manage(t.Context(), "GET", "/api/health/checks/local-alarms", "")
			return err != nil && strings.Contains(err.Error(), "503") && strings.Contains(err.Error(), "memory")
		})
		if _, err := s.Ctl(t.Context(), "set_vm_memory_high_watermark", "absolute", "4GB"); err != nil {
			t.Error(err)
		}
		awaiting(t, "the end of the memory alarm", func() bool {
			_, err := s.Manage(t.Context(), "GET", "/api/health/checks/local-alarms", "")
			return err == nil
		})
		testTLS(t, s)
	})
}

func testTLS(t *testing.T, s *Server) {
	u, err := url.Parse(s.TLSURL("/"))
	if err != nil || u.Scheme != "amqps" || u.User.String() != url.UserPassword(User, Password).String() {
		t.Errorf("TLSURL = %v, %v; want amqps and the user with its password", u.Redacted(), err)
	}
	d, err := s.tlsDialer()
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{u.Host, "localhost:" + port} {
		if err := greet(t.Context(), d, host); err != nil {
			t.Errorf("with TLS as %s: %v", host, err)
		}
	}
	d.Config.RootCAs = nil
	if err := greet(t.Context(), d, u.Host); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("who does not trust the authority gets %v, want an error about the certificate", err)
	}
	if err := greet(t.Context(), &net.Dialer{}, u.Host); err == nil {
		t.Error("the port with TLS answers without")
	}
}

func TestStart_FailureSaysWhy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config Config
		want   []string
	}{
		"a wrong setting": {Config{Release: V4, Settings: map[string]string{"channel_max": "plenty"}}, []string{
			"rabbitmq: start RabbitMQ 4: ", "it ended instead of accepting connections", "channel_max",
		}},
		"an unknown plugin": {Config{Plugins: []string{"unheard_of"}}, []string{`there is no plugin "unheard_of"; there are `, "rabbitmq_shovel"}},
		"a name of no plugin": {Config{Plugins: []string{"]"}}, []string{
			`Config.Plugins has "]", which is no name of a plugin`,
		}},
		"a setting of two lines": {Config{Settings: map[string]string{"a": "b\nc"}}, []string{`Config.Settings["a"] has more than one line`}},
		"a name of no setting":   {Config{Settings: map[string]string{"a = b": "c"}}, []string{`Config.Settings has "a = b", which is no name of a setting`}},
		"no release":             {Config{Release: 7}, []string{"Config.Release is 7, which is none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := Start(c.config)
			if err == nil {
				t.Errorf("Start returned no error, and %v from Stop", s.Stop())
			}
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("Start: %v; want %s", err, want)
				}
			}
		})
	}
}

func TestPlugins_BringTheirDependencies(t *testing.T) {
	t.Parallel()
	spec := "{application, 'a', [\n\t{modules, [x,y]},\n\t{applications, [kernel,stdlib,\n\t 'b' , c]},\n\t{included_applications,[d]},\n\t{optional_applications,[c]}]}."
	if got, want := requirements(spec), []string{"kernel", "stdlib", "b", "c", "d", "c"}; !slices.Equal(got, want) {
		t.Errorf("requirements = %q, want %q", got, want)
	}
	all := applications{
		known: map[string]application{
			"a": {"a-1", []string{"b", "kernel"}},
			"b": {"b-1", []string{"c"}},
			"c": {"c-1", []string{"a"}},
			"d": {"d-1", []string{"a"}},
		},
	}
	if got, err := all.closure([]string{"a"}); err != nil || !slices.Equal(got, []string{"a-1", "b-1", "c-1"}) {
		t.Errorf("closure = %q, %v; want all but d-1", got, err)
	}
	if got, err := all.closure([]string{"x"}); err == nil {
		t.Errorf("closure of what there is not = %q, want an error", got)
	}
	all.others = []string{"x.ez"}
	if got, err := all.closure([]string{"b", "x"}); err != nil || !slices.Equal(got, []string{"a-1", "b-1", "c-1", "x.ez"}) {
		t.Errorf("closure = %q, %v; want all but d-1, and x.ez", got, err)
	}
}
