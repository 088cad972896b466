package asb_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

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
		"an entity's string":          {asb.Config{ConnectionString: anyInstance + ";EntityPath=orders"}, "EntityPath"},
		"no key":                      {asb.Config{ConnectionString: "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKeyName=root"}, "no SharedAccessKey;"},
		"no name of a key":            {asb.Config{ConnectionString: "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessKey=" + secretKey}, "no SharedAccessKeyName"},
		"no endpoint":                 {asb.Config{ConnectionString: "SharedAccessKeyName=root;SharedAccessKey=" + secretKey}, "no Endpoint"},
		"no connection string":        {asb.Config{ConnectionString: secretKey[:20]}, "not NAME=VALUE"},
		"a short lock":                {asb.Config{ConnectionString: anyInstance, LockDuration: time.Second}, "LockDuration is 1s"},
		"a negative wait":             {asb.Config{ConnectionString: anyInstance, MaxPostpone: -time.Hour}, "MaxPostpone is -1h0m0s"},
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

// A value in the wrong field is a mistake that is easily made, and New's error is logged.
func TestConfig_ShowsNoSecret(t *testing.T) {
	for name, cfg := range map[string]asb.Config{
		"in its field":                           {ConnectionString: anyInstance},
		"a connection string as the namespace":   {Namespace: anyInstance},
		"the key as the namespace":               {Namespace: secretKey},
		"with the namespace's name":              {Namespace: "shop.servicebus.windows.net;" + secretKey},
		"with a user in the namespace":           {Namespace: secretKey + "@shop.servicebus.windows.net"},
		"both":                                   {Namespace: anyInstance, ConnectionString: anyInstance},
		"a connection string without names":      {ConnectionString: secretKey},
		"the key as EntityPath":                  {ConnectionString: anyInstance + ";EntityPath=" + secretKey},
		"the key as Endpoint":                    {ConnectionString: "Endpoint=sb://" + secretKey + "/;SharedAccessKeyName=root;SharedAccessKey=x"},
		"the key as the user of Endpoint":        {ConnectionString: strings.Replace(anyInstance, "sb://", "sb://"+secretKey+"@", 1)},
		"the key for UseDevelopmentEmulator":     {ConnectionString: anyInstance + ";UseDevelopmentEmulator=" + secretKey},
		"a broken signature":                     {ConnectionString: "Endpoint=sb://shop.servicebus.windows.net/;SharedAccessSignature=" + secretKey},
		"the user of AdminEndpoint":              {ConnectionString: anyInstance, AdminEndpoint: "http://" + secretKey[:20] + ":" + secretKey + "@localhost:5300"},
		"the query of AdminEndpoint":             {ConnectionString: anyInstance, AdminEndpoint: "https://localhost:5300/?sig=" + secretKey},
		"the path of AdminEndpoint":              {ConnectionString: anyInstance, AdminEndpoint: "https://localhost:5300/" + secretKey},
		"the fragment of AdminEndpoint":          {ConnectionString: anyInstance, AdminEndpoint: "https://localhost:5300/#" + secretKey},
		"the key as AdminEndpoint":               {ConnectionString: anyInstance, AdminEndpoint: secretKey},
		"a connection string as AdminEndpoint":   {ConnectionString: anyInstance, AdminEndpoint: anyInstance},
		"the end of AdminEndpoint":               {ConnectionString: anyInstance, AdminEndpoint: "https://localhost;SharedAccessKey=" + secretKey},
		"a connection string as QueuePrefix":     {ConnectionString: anyInstance, QueuePrefix: anyInstance},
		"the key as TopicPrefix":                 {ConnectionString: anyInstance, TopicPrefix: secretKey},
		"a connection string among sessions":     {ConnectionString: anyInstance, SessionQueues: []string{anyInstance}},
		"a broken pattern among sessions":        {ConnectionString: anyInstance, SessionQueues: []string{"[" + secretKey}},
		"a connection string as CustomEndpoint":  {ConnectionString: anyInstance, Client: azservicebus.ClientOptions{CustomEndpoint: anyInstance}},
		"the key as the host of CustomEndpoint":  {ConnectionString: anyInstance, Client: azservicebus.ClientOptions{CustomEndpoint: secretKey + ":5671"}},
		"a connection string as a message limit": {ConnectionString: anyInstance, MaxMessageBytes: -1},
	} {
		t.Run(name, func(t *testing.T) {
			shown := shownForms(t, cfg)
			transport, err := asb.New(cfg)
			if err != nil {
				shown = append(shown, fmt.Sprintf("%v %+v %#v %q", err, err, err.Error(), err))
			} else {
				t.Cleanup(func() { transport.Close(context.Background()) })
				shown = append(shown, fmt.Sprintf("%v %+v %#v %s", transport, transport, transport, transport.Describe().ServerAddress))
				shown = append(shown, transport.Warnings()...)
			}
			if _, err := asb.Bicep(cfg, asb.Entities{}); err != nil {
				shown = append(shown, err.Error())
			}
			for _, text := range shown {
				if strings.Contains(text, secretKey[:20]) {
					t.Errorf("it shows the key: %s", text)
				}
			}
		})
	}
	for _, text := range shownForms(t, asb.Config{ConnectionString: anyInstance, AdminEndpoint: "https://user@admin.example.com:5300/?sig=x", SessionQueues: []string{"orders*"}}) {
		for _, want := range []string{"shop.servicebus.windows.net", "https://admin.example.com:5300", "orders*"} {
			if !strings.Contains(text, want) {
				t.Errorf("it does not show %s: %s", want, text)
			}
		}
	}
}

// shownForms returns the texts in which a configuration may be logged.
func shownForms(t *testing.T, cfg asb.Config) (texts []string) {
	t.Helper()
	text, err := json.Marshal(map[string]any{"config": cfg})
	if err != nil {
		t.Fatal(err)
	}
	within := struct{ Config asb.Config }{cfg}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		texts = append(texts, fmt.Sprintf(format, cfg), fmt.Sprintf(format, &cfg), fmt.Sprintf(format, within))
	}
	var log strings.Builder
	slog.New(slog.NewTextHandler(&log, nil)).Info("opened", "config", cfg)
	slog.New(slog.NewJSONHandler(&log, nil)).Info("opened", "config", &cfg)
	return append(texts, string(text), log.String())
}

func TestNew_WarnsOfPlainText(t *testing.T) {
	emulator := func(host string) string {
		return "Endpoint=sb://" + host + "/;SharedAccessKeyName=root;SharedAccessKey=" + secretKey + ";UseDevelopmentEmulator=true"
	}
	elsewhere := func(endpoint string) azservicebus.ClientOptions {
		return azservicebus.ClientOptions{CustomEndpoint: endpoint}
	}
	ownConnection := azservicebus.ClientOptions{NewWebSocketConn: func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		return nil, errors.New("not called")
	}}
	for name, c := range map[string]struct {
		cfg  asb.Config
		says string // "": no warning
	}{
		"TLS":                                  {asb.Config{ConnectionString: anyInstance}, ""},
		"an emulator on this machine":          {asb.Config{ConnectionString: emulator("localhost"), AdminEndpoint: "http://localhost:5300"}, ""},
		"with a port":                          {asb.Config{ConnectionString: emulator("127.0.0.1:5700"), AdminEndpoint: "http://127.0.0.1:5300"}, ""},
		"an emulator elsewhere":                {asb.Config{ConnectionString: emulator("shop.servicebus.windows.net")}, "UseDevelopmentEmulator=true"},
		"an emulator at another address":       {asb.Config{ConnectionString: emulator("localhost"), Client: elsewhere("10.0.0.1:5672")}, "10.0.0.1"},
		"an emulator behind a local address":   {asb.Config{ConnectionString: emulator("emulator"), Client: elsewhere("localhost:5672")}, ""},
		"the application's own connections":    {asb.Config{ConnectionString: emulator("emulator"), Client: ownConnection}, ""},
		"requests elsewhere without TLS":       {asb.Config{ConnectionString: anyInstance, AdminEndpoint: "http://admin.example.com:5300"}, "Config.AdminEndpoint"},
		"requests elsewhere with TLS":          {asb.Config{ConnectionString: anyInstance, AdminEndpoint: "https://admin.example.com:5300"}, ""},
		"an unverified certificate":            {asb.Config{ConnectionString: anyInstance, Client: azservicebus.ClientOptions{TLSConfig: &tls.Config{InsecureSkipVerify: true}}}, "InsecureSkipVerify"}, //nolint:gosec // the test is about it
		"requests to this machine without TLS": {asb.Config{ConnectionString: anyInstance, AdminEndpoint: "http://[::1]:5300"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			transport, err := asb.New(c.cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { transport.Close(context.Background()) })
			warnings := transport.Warnings()
			switch {
			case c.says == "" && len(warnings) > 0:
				t.Errorf("it warns: %q", warnings)
			case c.says != "" && (len(warnings) != 1 || !strings.Contains(warnings[0], c.says)):
				t.Errorf("the warnings are %q, want one that says %q", warnings, c.says)
			}
		})
	}
}
