package rabbitmq

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The error says which URL is wrong and where, and has no part of a password in it,
// wherever the mistake puts that.
func TestURL_Refused(t *testing.T) {
	t.Parallel()
	notPEM := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(notPEM, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const app, secure = "amqp://app:hunter2@h", "amqps://app:hunter2@h"
	for name, c := range map[string]struct {
		url  string
		want []string
	}{
		"of another product":              {"postgres://app:hunter2@h/vhost", []string{`the scheme "postgres"`, "amqp:// or amqps://"}},
		"without a scheme":                {"app:hunter2@h/vhost", []string{"begin it with amqp:// or amqps://"}},
		"a space before it":               {" " + app, []string{"begins or ends with a space"}},
		"a line break in it":              {app + "\n/", []string{"control character"}},
		"a space in it":                   {app + "/vhost one", []string{"a space in it", "%20"}},
		"a bad port":                      {app + ":56x2", []string{`the port in "h:56x2"`}},
		"a port that is too large":        {app + ":99999", []string{`the port in "h:99999"`, "65535"}},
		"several hosts":                   {app + ",g/vhost", []string{"several hosts", "write a URL for each"}},
		"several hosts with ports":        {app + ":1,g:2/vhost", nil},
		"a slash in the password":         {"amqp://app:hun/ter2@h/vhost", []string{"%2F"}},
		"a slash after a number":          {"amqp://app:12/ter2@h/vhost", []string{"%2F"}},
		"a question mark in the password": {"amqp://app:hun?ter2@h/vhost", []string{"%3F"}},
		"a question mark after a number":  {"amqp://app:12?ter2@h/vhost", []string{"%3F"}},
		"a hash in the password":          {"amqp://app:hun#ter2@h/vhost", []string{"%23"}},
		"an at and a slash":               {"amqp://app:ter2@hun/hunter2@h/vhost", []string{"%2F", "%40"}},
		"an at and a question mark":       {"amqp://app:ter2@hun?hunter2@h/vhost", []string{"%3F", "%40"}},
		"a percent sign in the password":  {"amqp://app:hun%ter2@h/vhost", []string{"a % itself is written as %25"}},
		"a percent sign in an option":     {app + "?heartbeat=hun%ter2", []string{"in its options", "%25"}},
		"an option there is not":          {app + "?hearbeat=1", []string{`no option "hearbeat"`, "heartbeat", "cacertfile"}},
		"an option without a value":       {app + "?cacertfile=hun&ter2", []string{"name=value", "%26"}},
		"an option twice":                 {app + "?heartbeat=1&heartbeat=2", []string{"the option heartbeat is there 2 times"}},
		"a heartbeat with a unit":         {app + "?heartbeat=5s", []string{"the option heartbeat must be a whole number from 1 to 65535"}},
		"no heartbeat":                    {app + "?heartbeat=0", []string{"the option heartbeat must be"}},
		"an empty heartbeat":              {app + "?heartbeat=", []string{"the option heartbeat must be"}},
		"no time to connect":              {app + "?connection_timeout=0", []string{"the option connection_timeout must be a whole number from 1 to"}},
		"too few channels":                {app + "?channel_max=1", []string{"the option channel_max", "from 8 to 65535"}},
		"a mechanism there is not":        {app + "?auth_mechanism=plain&auth_mechanism=gssapi", []string{"the option auth_mechanism must be one of plain, amqplain, external"}},
		"all options that are wrong":      {app + "?channel_max=1&heartbeat=x", []string{"channel_max", "heartbeat"}},
		"TLS without TLS":                 {app + "?cacertfile=/ca.pem", []string{"the option cacertfile is for TLS", "amqps://"}},
		"a certificate without its key":   {secure + "?certfile=/a.pem", []string{"certfile and keyfile only one"}},
		"a key without its certificate":   {secure + "?keyfile=/a.pem", []string{"certfile and keyfile only one"}},
		"authorities there are not":       {secure + "?cacertfile=/nowhere.pem", []string{"the file of the option cacertfile: no such file"}},
		"authorities that are none":       {secure + "?cacertfile=" + notPEM, []string{"the file of the option cacertfile has no certificate"}},
		"a certificate there is not":      {secure + "?certfile=/a.pem&keyfile=/b.pem", []string{"the file of the option certfile: no such file"}},
		"a long name of a virtual host":   {app + "/" + strings.Repeat("v", 256), []string{"virtual host has 256 bytes", "255"}},
	} {
		cfg := Config{URLs: []string{broker, c.url}}
		_, err := cfg.complete()
		if err == nil {
			t.Errorf("%s: there is no error", name)
			continue
		}
		for _, want := range append(c.want, "Config.URLs[1]") {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not say %q", name, err, want)
			}
		}
		for _, part := range []string{"hun", "ter2", "12?", "12/"} {
			for _, shown := range []string{err.Error(), cfg.String()} {
				if strings.Contains(shown, part) {
					t.Errorf("%s: %q has a part of the password in it", name, shown)
				}
			}
		}
	}
}

func TestURL_Accepted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"amqp://":                                      "amqp://guest@localhost:5672/",
		"amqp:///":                                     "amqp://guest@localhost:5672/",
		"amqp://h":                                     "amqp://guest@h:5672/",
		"amqps://h/":                                   "amqps://guest@h:5671/",
		"amqp://app@h/vhost":                           "amqp://app@h:5672/vhost",
		"amqp://app:hunter2@h:1/%2F":                   "amqp://app@h:1/",
		"amqp://app:hunter2@h/a%2Fb%20c":               "amqp://app@h:5672/a/b%20c",
		"amqp://app:hunter2@h/v%40w?heartbeat=5":       "amqp://app@h:5672/v@w",
		"amqp://app:hunter%2F2%40%3F%23@h/vhost":       "amqp://app@h:5672/vhost",
		"amqp://app:hunter@2@h/vhost":                  "amqp://app@h:5672/vhost",
		"amqp://[::1]:5673/vhost":                      "amqp://guest@[::1]:5673/vhost",
		"amqps://h?auth_mechanism=EXTERNAL":            "amqps://guest@h:5671/",
		"amqp://h?connection_timeout=50&channel_max=8": "amqp://guest@h:5672/",
	} {
		c := Config{URLs: []string{text}}
		endpoints, err := c.complete()
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := fmt.Sprint(endpoints[0]); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
}

// The settings of a URL are applied.
func TestURL_Endpoints(t *testing.T) {
	t.Parallel()
	c := Config{URLs: []string{
		"amqp://app:hunter%2F2@h:5673/a%2Fb",
		"amqps://app:hunter2@h?heartbeat=3&connection_timeout=250&server_name_indication=broker&auth_mechanism=external&auth_mechanism=amqplain",
	}}
	endpoints, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	plain, secure := endpoints[0], endpoints[1]
	if plain.addr != "h:5673" || plain.uri.Vhost != "a/b" || plain.uri.Password != "hunter/2" || plain.tls != nil || plain.heartbeat != 10*time.Second || plain.timeout != 30*time.Second {
		t.Errorf("the first is %+v", plain)
	}
	if secure.addr != "h:5671" || secure.tls.ServerName != "broker" || secure.tls.MinVersion != tls.VersionTLS12 || secure.heartbeat != 3*time.Second || secure.timeout != 250*time.Millisecond {
		t.Errorf("the second is %+v", secure)
	}
	ways := func(h brokerHost) (names []string) {
		for _, way := range h.sasl() {
			names = append(names, way.Mechanism())
		}
		return names
	}
	if got := ways(plain); !slices.Equal(got, []string{"PLAIN"}) {
		t.Errorf("the first logs in by %v", got)
	}
	if got := ways(secure); !slices.Equal(got, []string{"EXTERNAL", "AMQPLAIN"}) {
		t.Errorf("the second logs in by %v", got)
	}
	plain.sasl()[0].(*amqp.PlainAuth).Password = "" // as the client library does
	if got := plain.sasl()[0].Response(); got != "\x00app\x00hunter/2" {
		t.Errorf("the next connection logs in with %q", got)
	}
}

// Config.TLS is for all URLs, each with its own name of the server, and no handshake can
// change it.
func TestURL_TLS(t *testing.T) {
	t.Parallel()
	c := Config{URLs: []string{"amqps://h", "amqps://g?server_name_indication=broker"}, TLS: &tls.Config{MinVersion: tls.VersionTLS13}}
	endpoints, err := c.complete()
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"h", "broker"} {
		if got := endpoints[i].tls; got.ServerName != want || got.MinVersion != tls.VersionTLS13 || got == c.TLS {
			t.Errorf("the name of the server is %q in %d, want %q", got.ServerName, i, want)
		}
	}
	if c.TLS.ServerName != "" {
		t.Error("the configuration was changed")
	}
	c = Config{URLs: []string{"amqps://h?cacertfile=/ca.pem"}, TLS: &tls.Config{}}
	if _, err := c.complete(); err == nil || !strings.Contains(err.Error(), "cacertfile, and Config.TLS is set") {
		t.Errorf("authorities in both: %v", err)
	}
}

func TestURL_ManagementRefused(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"app:hunter2@h:15672":                "begin it with http:// or https://",
		"amqp://app:hunter2@h":               `the scheme "amqp"`,
		"http://h:15672":                     "names no user",
		"http://app:hunter2@":                "names no host",
		"http://app:hunter2@h:x":             `the port in "h:x"`,
		"http://app:hun/ter2@h:15672":        "%2F",
		"http://app:hunter2@h:15672?a=b":     "has options",
		"http://app:hunter2@h:15672/api?a@b": "%3F",
	} {
		c := Config{URLs: []string{broker}, ManagementURL: text}
		_, err := c.complete()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "Config.ManagementURL") {
			t.Errorf("%s: %v, want %q", text, err, want)
			continue
		}
		if strings.Contains(err.Error(), "hun") || strings.Contains(err.Error(), "ter2") {
			t.Errorf("%s: %v has a part of the password in it", text, err)
		}
	}
	c := Config{URLs: []string{broker}, ManagementURL: "https://app:hunter2@" + net.JoinHostPort("::1", "15671") + "/rabbit"}
	if _, err := c.complete(); err != nil {
		t.Error(err)
	}
}
