package rabbitmq

import (
	"crypto/tls"
	"strings"
	"testing"
)

// Connections without TLS are warned of where they leave the machine.
func TestConfig_WarnsOfInsecureConnections(t *testing.T) {
	t.Parallel()
	unverified := &tls.Config{InsecureSkipVerify: true}
	for _, c := range []struct {
		cfg  Config
		says []string // one for each warning
	}{
		{Config{URLs: []string{"amqp://app:hunter2@rabbit/shop"}}, []string{`"rabbit:5672" are not encrypted`}},
		{Config{URLs: []string{"amqp://app:hunter2@localhost", "amqp://app:hunter2@a", "amqp://app:hunter2@b:1"}}, []string{`at "a:5672", "b:1" are not encrypted`}},
		{Config{URLs: []string{"amqps://app:hunter2@rabbit"}, TLS: unverified}, []string{`"rabbit:5671" do not verify the server`}},
		{Config{URLs: []string{"amqps://app:hunter2@rabbit"}, TLS: unverified, ManagementURL: "https://app:hunter2@rabbit:15671"}, []string{"do not verify the server", `API at "rabbit:15671" do not verify`}},
		{Config{URLs: []string{"amqps://app:hunter2@rabbit"}, ManagementURL: "http://app:hunter2@rabbit:15672"}, []string{`API at "rabbit:15672" are not encrypted`}},
		{Config{URLs: []string{"amqps://app:hunter2@rabbit"}, ManagementURL: "https://app:hunter2@rabbit:15671"}, nil},
		{Config{URLs: []string{"amqps://app:hunter2@rabbit"}}, nil},
		{Config{URLs: []string{"amqp://"}, ManagementURL: "http://guest:hunter2@localhost:15672"}, nil},
		{Config{URLs: []string{"amqp://app:hunter2@127.0.0.1", "amqp://app:hunter2@[::1]"}}, nil},
		{Config{URLs: []string{"amqps://app:hunter2@localhost"}, TLS: unverified}, nil},
	} {
		transport, err := New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		said := transport.Warnings()
		if len(said) != len(c.says) || strings.Contains(strings.Join(said, " "), "hunter2") {
			t.Errorf("%v: it says %q, want %q", c.cfg, said, c.says)
		} else {
			for i, want := range c.says {
				if !strings.Contains(said[i], want) {
					t.Errorf("%v: it says %q, want %q", c.cfg, said[i], want)
				}
			}
		}
		if repeated := transport.Warnings(); len(repeated) > 0 {
			t.Errorf("%v: it says %q again", c.cfg, repeated)
		}
		if err := transport.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
