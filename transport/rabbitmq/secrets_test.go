package rabbitmq

import (
	"context"
	"crypto/tls"
	"fmt"
	"hash/crc32"
	"net/url"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/internal/planted"
)

// nowhere is an address without a listener.
const nowhere = "127.0.0.1:1"

// placesOfPasswords are URLs with a password (%s) in it, where people write one.
var placesOfPasswords = []string{
	"amqp://app:%s@" + nowhere + "/vhost",
	"amqps://app:%s@" + nowhere + "/vhost?heartbeat=5",
	"AMQP://app:%s@" + nowhere,
	"amqp://:%s@" + nowhere + "/vhost",
	"amqp://app:%s@" + nowhere + ",127.0.0.1:2/vhost",
	"amqp://app:%s@" + nowhere + "/vhost?connection_timeout=1000",
	"amqp:///vhost?password=%s",
	"amqp://?password=%s",
	"app:%s@" + nowhere + "/vhost",
	"amqp:app:%s@" + nowhere + "/vhost",
}

var placesOfManagementPasswords = []string{
	"http://app:%s@" + nowhere,
	"https://app:%s@" + nowhere + "/rabbit",
	"http://app:%s@" + nowhere + "/?a=b",
	"HTTP://:%s@" + nowhere,
	"app:%s@" + nowhere,
}

// FuzzSecrets plants a secret into the places of a configuration, and looks for it in
// everything that the package says. Each secret has some of the places, which depend on
// it, so that all secrets together have each place several times.
func FuzzSecrets(f *testing.F) {
	for _, odd := range planted.Oddities() {
		f.Add(odd)
	}
	share := uint32(4)
	if testing.Short() {
		share = 16
	}
	f.Fuzz(func(t *testing.T, odd string) {
		t.Parallel()
		turn := crc32.ChecksumIEEE([]byte(odd))
		checkSecrets := func(t *testing.T, place string, cfg Config, use bool) {
			t.Helper()
			if turn++; turn%share == 0 {
				checkSecrets(t, place, cfg, use)
			}
		}
		secret := planted.Secret(odd)
		forms := planted.Forms(secret)
		for i, place := range placesOfPasswords {
			for j, form := range forms {
				use := j == 0 && i%3 == 0 || j == 1 && i == 0 // some as they are, and once as it should be
				checkSecrets(t, place, Config{URLs: []string{broker, fmt.Sprintf(place, form)}}, false)
				checkSecrets(t, place, Config{URLs: []string{fmt.Sprintf(place, form)}}, use)
			}
		}
		for _, place := range placesOfManagementPasswords {
			for _, form := range forms {
				checkSecrets(t, place, Config{URLs: []string{"amqp://app:pw@" + nowhere}, ManagementURL: fmt.Sprintf(place, form)}, false)
			}
		}
		for _, form := range []string{forms[0], url.QueryEscape(secret)} {
			for _, option := range []string{optionCA, optionCert, optionKey, optionServerName, optionMechanism, optionHeartbeat, optionTimeout, optionChannels} {
				for _, place := range []string{"amqp://app:pw@" + nowhere + "?", "amqps://app:pw@" + nowhere + "?", "amqps://app:pw@" + nowhere + "?certfile=/a&", "amqps://app:pw@" + nowhere + "?keyfile=/a&"} {
					place += option + "="
					checkSecrets(t, place, Config{URLs: []string{place + form}}, false)
				}
				place := "amqps://app:pw@" + nowhere + "?" + option + "="
				checkSecrets(t, place+" with TLS", Config{URLs: []string{place + form}, TLS: &tls.Config{}}, false)
			}
		}
	})
}

// checkSecrets makes a transport, and has it fail in everything if that is asked for.
func checkSecrets(t *testing.T, place string, cfg Config, use bool) {
	t.Helper()
	cfg.MessageType = func(string, *amqp.Delivery) string { return "" }
	planted.Check(t, place, []any{cfg, &cfg})
	transport, err := New(cfg)
	if err != nil {
		planted.Check(t, place+": New", err)
		return
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := transport.Close(ctx); err != nil {
			t.Error(err)
		}
	}()
	planted.Check(t, place+": host", []any{transport.hosts[0], *transport.hosts[0]})
	if use {
		planted.CheckTransport(t, place, transport)
	}
	if cfg.ManagementURL != "" {
		_, err := transport.queryManagement(t.Context(), "vhost", "orders")
		planted.Check(t, place+": management API", err)
	}
}
