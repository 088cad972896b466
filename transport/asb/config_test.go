package asb_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/transport/asb"
)

const (
	secretKey   = "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM="
	anyInstance = "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root;SharedAccessKey=" + secretKey
)

func TestNew_RefusesBadConfigurations(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  asb.Config
		says string
	}{
		"nothing":                     {asb.Config{}, "set Config.Namespace"},
		"two namespaces":              {asb.Config{Namespace: "a.servicebus.windows.net", ConnectionString: anyInstance}, "remove one"},
		"a URL":                       {asb.Config{Namespace: "https://a.servicebus.windows.net"}, "host name alone"},
		"a short name":                {asb.Config{Namespace: "shop"}, "shop.servicebus.windows.net"},
		"an entity's string":          {asb.Config{ConnectionString: anyInstance + ";EntityPath=orders"}, "EntityPath=orders"},
		"no key":                      {asb.Config{ConnectionString: "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root"}, "no SharedAccessKey;"},
		"no name of a key":            {asb.Config{ConnectionString: "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKey=" + secretKey}, "no SharedAccessKeyName"},
		"no endpoint":                 {asb.Config{ConnectionString: "SharedAccessKeyName=root;SharedAccessKey=" + secretKey}, "no Endpoint"},
		"no connection string":        {asb.Config{ConnectionString: secretKey[:20]}, "not NAME=VALUE"},
		"a short lock":                {asb.Config{ConnectionString: anyInstance, LockDuration: time.Second}, "LockDuration is 1s"},
		"a long lock":                 {asb.Config{ConnectionString: anyInstance, LockDuration: time.Hour}, "LockDuration is 1h0m0s"},
		"messages that are too large": {asb.Config{ConnectionString: anyInstance, MaxMessageBytes: 1 << 30}, "MaxMessageBytes"},
		"a bad pattern":               {asb.Config{ConnectionString: anyInstance, SessionQueues: []string{"a["}}, "SessionQueues"},
		"a bad prefix":                {asb.Config{ConnectionString: anyInstance, QueuePrefix: "a b"}, "QueuePrefix"},
		"a prefix of a slash":         {asb.Config{ConnectionString: anyInstance, TopicPrefix: "/test"}, "TopicPrefix"},
		"a bad admin endpoint":        {asb.Config{ConnectionString: anyInstance, AdminEndpoint: "localhost"}, "AdminEndpoint"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := asb.New(c.cfg)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("the error is %v; it should say %q", err, c.says)
			}
			if err != nil && strings.Contains(err.Error(), secretKey[:20]) {
				t.Errorf("the error has a secret: %v", err)
			}
		})
	}
}

func TestNew_NamesEveryMistake(t *testing.T) {
	_, err := asb.New(asb.Config{LockDuration: time.Hour, MaxMessageBytes: -1})
	for _, field := range []string{"Config.Namespace", "Config.LockDuration", "Config.MaxMessageBytes"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("the error %v does not name %s", err, field)
		}
	}
}

func TestConfig_ShowsNoSecret(t *testing.T) {
	cfg := asb.Config{ConnectionString: anyInstance, AdminEndpoint: "http://user:" + secretKey + "@localhost:5300"}
	text, err := json.Marshal(map[string]any{"config": cfg})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("opened", "config", cfg)
	for _, shown := range []string{cfg.String(), fmt.Sprintf("%#v", cfg), fmt.Sprint(&cfg), string(text), log.String()} {
		if strings.Contains(shown, secretKey) {
			t.Errorf("it shows the key: %s", shown)
		}
		if !strings.Contains(shown, "shop.servicebus.windows.net") {
			t.Errorf("it does not show the namespace: %s", shown)
		}
	}
}
