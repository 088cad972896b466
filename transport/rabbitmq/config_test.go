package rabbitmq

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const broker = "amqp://app:hunter2@h/vhost"

func TestConfig_Defaults(t *testing.T) {
	t.Parallel()
	c := Config{URLs: []string{broker}}
	if _, err := c.complete(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(os.Args[0])
	if c.QueueType != Quorum || c.Topology != Conventional || c.DeliveryLimit != 100_000 || c.MaxMessageBytes != 16<<20 ||
		c.ConsumerTimeout != 30*time.Minute || c.ConnectionName != name {
		t.Errorf("the defaults are %v", c)
	}
	set := Config{URLs: []string{broker}, QueueType: Classic, Topology: Direct, DeliveryLimit: 1, MaxMessageBytes: 512 << 20, ConsumerTimeout: time.Hour, ConnectionName: "shop"}
	c = set
	if _, err := c.complete(); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(c) != fmt.Sprint(set) {
		t.Errorf("the set values became %v, want %v", c, set)
	}
}

// All mistakes are reported together, each with the name of its field.
func TestConfig_NamesEveryMistake(t *testing.T) {
	t.Parallel()
	c := Config{
		URLs:            []string{"http://app:hunter2@h", broker, "amqp://app:hunter2@h:0"},
		QueueType:       2,
		Topology:        -1,
		DeliveryLimit:   -1,
		MaxMessageBytes: 512<<20 + 1,
		ConsumerTimeout: -time.Second,
		ManagementURL:   "amqp://app:hunter2@h",
	}
	endpoints, err := c.complete()
	if err == nil || endpoints != nil {
		t.Fatalf("complete returns %v, %v", endpoints, err)
	}
	for _, want := range []string{
		"Config.URLs[0]", `the port in "h:0"`, "Config.URLs[2]", "Config.QueueType is 2", "Config.Topology is -1",
		"Config.DeliveryLimit is -1", "Config.MaxMessageBytes is 536870913", "Config.ConsumerTimeout is -1s", "Config.ManagementURL",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if strings.Contains(err.Error(), "hunter2") || strings.Contains(err.Error(), "URLs[1]") {
		t.Errorf("%q says too much", err)
	}
}

func TestConfig_Refused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"no URL":                     {Config{}, "Config.URLs is empty"},
		"an empty URL":               {Config{URLs: []string{""}}, "Config.URLs[0] is no URL: begin it with amqp:// or amqps://"},
		"a limit too large for AMQP": {Config{URLs: []string{broker}, DeliveryLimit: math.MaxInt32 + 1}, "Config.DeliveryLimit"},
		"a negative size":            {Config{URLs: []string{broker}, MaxMessageBytes: -1}, "Config.MaxMessageBytes"},
		"a heartbeat of a day":       {Config{URLs: []string{broker + "?heartbeat=86400"}}, "heartbeat must be a whole number"},
		"a limit that is not theirs": {Config{URLs: []string{broker}, Topology: NServiceBus, DeliveryLimit: 5000}, "Config.DeliveryLimit is 5000, but in the topology of NServiceBus it is 100000"},
		"a user twice":               {Config{URLs: []string{broker}, Credentials: noCredentials}, "Config.URLs[0] has a user, and Config.Credentials is set"},
		"credentials of no use":      {Config{URLs: []string{"amqps://h?auth_mechanism=EXTERNAL"}, Credentials: noCredentials}, "auth_mechanism is external"},
		"TLS that is not used":       {Config{URLs: []string{broker}, TLS: &tls.Config{}}, "Config.TLS would not be used"},
	} {
		if _, err := c.cfg.complete(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	c := Config{URLs: []string{broker}, TLS: &tls.Config{}, ManagementURL: "https://app:hunter2@h:15671"}
	if _, err := c.complete(); err != nil {
		t.Errorf("TLS that only the management API uses: %v", err)
	}
}

func noCredentials(context.Context) (user, password string, expires time.Time, err error) {
	return "", "", time.Time{}, nil
}

func TestConfig_FunctionsAreNotInJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(Config{URLs: []string{"amqp://h"}, Credentials: noCredentials})
	if err != nil || strings.Contains(string(text), "Credentials") {
		t.Errorf("%s, %v", text, err)
	}
}

func TestConfig_StringHasNoPassword(t *testing.T) {
	t.Parallel()
	c := Config{URLs: []string{broker, "amqp://app:hun/ter2@h"}, ManagementURL: "http://app:hunter2@h:15672"}
	for _, shown := range []string{c.String(), fmt.Sprintf("%v %+v %#v", c, c, c), fmt.Sprint(&c)} {
		if strings.Contains(shown, "hun") || strings.Contains(shown, "ter2") {
			t.Errorf("%s has a password", shown)
		}
		if !strings.Contains(shown, "amqp://app@h/vhost") || !strings.Contains(shown, "http://app@h:15672") {
			t.Errorf("%s does not say where the broker is", shown)
		}
	}
	if c.URLs[0] != broker {
		t.Error("showing the configuration has changed it")
	}
}

func TestConfig_NamesInFiles(t *testing.T) {
	t.Parallel()
	type file struct {
		Type     QueueType
		Topology RoutingTopology
	}
	for _, f := range []file{{Quorum, Conventional}, {Classic, Direct}, {Quorum, NServiceBus}} {
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf(`{"Type":"%v","Topology":"%v"}`, f.Type, f.Topology)
		if string(text) != want {
			t.Errorf("%s, want %s", text, want)
		}
		var read file
		if err := json.Unmarshal(text, &read); err != nil || read != f {
			t.Errorf("%s was read as %v, %v", text, read, err)
		}
	}
	for _, wrong := range []any{QueueType(2), QueueType(-1), RoutingTopology(3), RoutingTopology(-1)} {
		if text, err := json.Marshal(wrong); err == nil {
			t.Errorf("%v was written as %s", wrong, text)
		}
	}
	if err := new(QueueType).UnmarshalText([]byte("quorum")); err == nil || !strings.Contains(err.Error(), "Quorum or Classic") {
		t.Errorf("an unknown queue type: %v", err)
	}
	if err := new(RoutingTopology).UnmarshalText(nil); err == nil || !strings.Contains(err.Error(), "Conventional, Direct or NServiceBus") {
		t.Errorf("an unknown topology: %v", err)
	}
}
