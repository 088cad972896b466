package sqlserver_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestSecurity_UnverifiedConnectionsLogAWarning are warned of where they leave the machine.
func TestSecurity_UnverifiedConnectionsLogAWarning(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		url  string
		says []string // nil: nothing
	}{
		{"postgres://app:hunter2@db/queues", []string{`"db" do not verify the server, and are not encrypted where it has no TLS`, "sslmode=verify-full", "sslrootcert"}},
		{"postgres://app:hunter2@db/queues?sslmode=allow", []string{"do not verify the server, and are not encrypted"}},
		{"postgres://app:hunter2@10.0.0.1/queues?sslmode=require", []string{`"10.0.0.1" are encrypted, but do not verify the server`, "sslmode=verify-full"}},
		{"postgres://app:hunter2@db/queues?sslmode=disable", []string{`"db" are not encrypted (sslmode=disable)`, "sslmode=verify-full"}},
		{"postgres://app:hunter2@localhost,db,10.0.0.1,db/queues?sslmode=require", []string{`at "db", "10.0.0.1" are`}},
		{"postgres://app:hunter2@db/queues?sslmode=verify-ca", []string{`"db" accept the certificate of any host`, "sslmode=verify-ca without sslrootcert", "sslmode=verify-full"}},
		{"postgres://app:hunter2@db/queues?sslmode=verify-ca&sslrootcert=" + authority(t), nil},
		{"postgres://app:hunter2@db/queues?sslmode=require&sslrootcert=" + authority(t), nil},
		{"postgres://app:hunter2@localhost/queues?sslmode=verify-ca", nil},
		{"postgres://app:hunter2@db/queues?sslmode=verify-full", nil},
		{"postgres://app:hunter2@db/queues?sslrootcert=system", nil},
		{"postgres://app:hunter2@localhost/queues", nil},
		{"postgres://app:hunter2@127.0.0.1:5433/queues?sslmode=disable", nil},
		{"postgres://app:hunter2@[::1]/queues", nil},
		{"postgres:///queues?host=/var/run/postgresql", nil},
		{"postgres://", nil},
		{"sqlserver://app:hunter2@db?database=queues", []string{`"db" are not encrypted`, "encrypt=true"}},
		{"sqlserver://app:hunter2@db?database=queues&encrypt=disable", []string{"are not encrypted"}},
		{"sqlserver://app:hunter2@db?database=queues&encrypt=true&TrustServerCertificate=true", []string{"are encrypted, but do not verify the server"}},
		{"sqlserver://app:hunter2@db?database=queues&encrypt=true", nil},
		{"sqlserver://app:hunter2@localhost?database=queues", nil},
	} {
		configs := []sqlserver.Config{{URL: c.url, Experimental: sqlserver.MicrosoftSQLServer}}
		if strings.HasPrefix(c.url, "postgres") {
			configs = append(configs, sqlserver.Config{Pool: poolOf(t, c.url)})
		}
		for _, cfg := range configs {
			opened, err := sqlserver.New(cfg)
			if err != nil {
				t.Fatalf("%s: %v", c.url, err)
			}
			said := strings.Join(opened.Warnings(), "\n")
			for _, want := range c.says {
				if !strings.Contains(said, want) {
					t.Errorf("%s: it says %q, want %q", c.url, said, want)
				}
			}
			if c.says == nil && said != "" || strings.Contains(said, "hunter2") || strings.Contains(said, `"localhost"`) {
				t.Errorf("%s: it says %q", c.url, said)
			}
			closed(t, opened)
		}
	}
}

// TestSecurity_VerificationOfTheApplicationIsTrusted: it may compare a fingerprint.
func TestSecurity_VerificationOfTheApplicationIsTrusted(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig("postgres://app:hunter2@db/queues?sslmode=require")
	if err != nil {
		t.Fatal(err)
	}
	config.ConnConfig.TLSConfig.VerifyPeerCertificate = func([][]byte, [][]*x509.Certificate) error { return errors.New("another fingerprint") }
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	opened, err := sqlserver.New(sqlserver.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	if texts := opened.Warnings(); len(texts) > 0 {
		t.Errorf("it warns of %q", texts)
	}
	closed(t, opened)
}

// authority returns the file of the certificate of a certificate authority.
func authority(t *testing.T) string {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	certificate := &x509.Certificate{SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(nil, certificate, certificate, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "authority.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestSecurity_WarningIsLoggedOnce for any number of endpoints, also by those that only send.
func TestSecurity_WarningIsLoggedOnce(t *testing.T) {
	t.Parallel()
	opened, err := sqlserver.Open("postgres://app:hunter2@db/queues")
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, opened)
	var log bytes.Buffer
	for _, name := range []string{"orders", "billing"} {
		cfg := core.Config{SendOnly: true, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		if _, err := core.New(name, transport.Wrapper{Transport: opened}, cfg); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Count(log.String(), "\n")
	if lines != 1 || !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "sslmode=verify-full") || !strings.Contains(log.String(), "endpoint=orders") {
		t.Errorf("the log has %d lines, want one warning:\n%s", lines, log.String())
	}
}
