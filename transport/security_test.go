package transport_test

import (
	"crypto/tls"
	"crypto/x509"
	"slices"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestIsLocalHost(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]bool{
		"": true, "localhost": true, "LOCALHOST.": true, "db.localhost": true, "127.0.0.1": true, "127.9.9.9": true, "::1": true, "::1%lo": true, "::ffff:127.0.0.1": true, "/var/run/postgresql": true,
		"db": false, "localhost.example.com": false, "notlocalhost": false, "10.0.0.1": false, "0.0.0.0": false, "fe80::1%eth0": false, "127.0.0.1.example.com": false,
	} {
		if got := transport.IsLocalHost(host); got != want {
			t.Errorf("IsLocalHost(%q) = %v", host, got)
		}
	}
}

func TestVerifiesServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		config *tls.Config
		want   bool
	}{
		"no TLS":                {nil, false},
		"the default":           {&tls.Config{}, true},
		"nothing":               {&tls.Config{InsecureSkipVerify: true}, false},
		"the chain, as libpq":   {&tls.Config{InsecureSkipVerify: true, VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error { return nil }}, true},
		"by code of the user's": {&tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error { return nil }}, true},
	} {
		if got := transport.VerifiesServer(c.config); got != c.want {
			t.Errorf("%s: VerifiesServer = %v", name, got)
		}
	}
}

// warner is a transport with warnings.
type warner struct {
	core.Transport
	transport.Undescribed
	texts transport.Warnings
}

func (w *warner) Warnings() []string { return w.texts.Take() }

func TestWarnings_AreGivenOnce(t *testing.T) {
	t.Parallel()
	bare, err := inmemory.New(inmemory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close(t.Context())
	if got := (transport.Wrapper{Transport: bare}).Warnings(); got != nil {
		t.Errorf("a transport without warnings has %q", got)
	}
	w := &warner{Transport: bare}
	w.texts.Add("one")
	w.texts.Add("two")
	wrapped := transport.Wrapper{Transport: w}
	if got := wrapped.Warnings(); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("the warnings are %q", got)
	}
	if got := wrapped.Warnings(); len(got) > 0 {
		t.Errorf("the warnings come again: %q", got)
	}
}
