package sdkclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// The SDK pauses between no two attempts to renew a token.
func TestDial_PausesAfterAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		var cfg Config
		cfg.Options.NewWebSocketConn = func(context.Context, azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
			attempts++
			return nil, errors.New("refused")
		}
		dial := (&dialer{cfg: &cfg}).dial
		began := time.Now()
		for time.Since(began) < 10*time.Second && attempts < 100 {
			if _, err := dial(t.Context(), azservicebus.NewWebSocketConnArgs{}); err == nil {
				t.Fatal("the attempt succeeded")
			}
		}
		if attempts > 30 {
			t.Errorf("there were %d attempts in ten seconds", attempts)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before := attempts
		if _, err := dial(ctx, azservicebus.NewWebSocketConnArgs{}); !errors.Is(err, context.Canceled) || attempts > before {
			t.Errorf("with a context that has ended: %v, and %d attempts", err, attempts-before)
		}
	})
}

func TestClient_ConnectionEnds(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(conn, peer net.Conn){
		"by its peer": func(conn, peer net.Conn) {
			_ = peer.Close()
			if n, err := conn.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes were read after the end", n)
			}
		},
		"by the client": func(conn, _ net.Conn) { _ = conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var cfg Config
			var peer net.Conn
			cfg.Options.NewWebSocketConn = func(context.Context, azservicebus.NewWebSocketConnArgs) (conn net.Conn, err error) {
				conn, peer = net.Pipe()
				return conn, nil
			}
			c := &Client{dialer: &dialer{cfg: &cfg}}
			if c.Connection() != nil {
				t.Error("there is a connection before the first one")
			}
			conn, err := c.dialer.dial(t.Context(), azservicebus.NewWebSocketConnArgs{})
			if err != nil {
				t.Fatal(err)
			}
			connection := c.Connection()
			if connection == nil || connection.Err() != nil {
				t.Fatalf("an open connection is %v", connection)
			}
			end(conn, peer)
			if connection.Err() == nil {
				t.Error("a lost connection has not ended")
			}
		})
	}
}

func TestDial_VerifiesTheNamespace(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(nil) // its certificate is that of example.com
	t.Cleanup(server.Close)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	for namespace, right := range map[string]bool{"example.com": true, "other.org": false} {
		cfg := Config{Namespace: namespace}
		cfg.Options.CustomEndpoint = server.Listener.Addr().String()
		cfg.Options.TLSConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		conn, err := (&dialer{cfg: &cfg}).dial(t.Context(), azservicebus.NewWebSocketConnArgs{})
		if (err == nil) != right {
			t.Errorf("%s: the error is %v", namespace, err)
		}
		if err == nil {
			if err := conn.Close(); err != nil {
				t.Error(err)
			}
		}
		if cfg.Options.TLSConfig.ServerName != "" {
			t.Error("the application's TLSConfig was changed")
		}
	}
}

func TestDial_Addresses(t *testing.T) {
	t.Parallel()
	const key = ";SharedAccessKeyName=name;SharedAccessKey=key"
	custom := Config{Namespace: "shop.servicebus.windows.net"}
	custom.Options.CustomEndpoint = "10.0.0.1:4711"
	for addr, c := range map[string]struct {
		cfg    Config
		secure bool
	}{
		"shop.servicebus.windows.net:5671":  {Config{Namespace: "shop.servicebus.windows.net"}, true},
		"other.servicebus.windows.net:5671": {Config{ConnectionString: "Endpoint=sb://other.servicebus.windows.net/" + key}, true},
		"localhost:5672":                    {Config{ConnectionString: "Endpoint=sb://localhost" + key + ";UseDevelopmentEmulator=true"}, false},
		"localhost:5800":                    {Config{ConnectionString: "endpoint=sb://localhost:5800" + key + ";usedevelopmentemulator=True"}, false},
		"10.0.0.1:4711":                     {custom, true},
	} {
		if got, _, secure := c.cfg.dialed(); got != addr || secure != c.secure {
			t.Errorf("the address is %s, with TLS %v; want %s, %v", got, secure, addr, c.secure)
		}
	}
}
