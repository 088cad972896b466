package serverurl

import (
	"crypto/tls"
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoftdriver"
)

func TestForPgx_HasTheSameParts(t *testing.T) {
	for text, want := range map[string]string{
		"postgres://app:secret@db/queues?sslmode=disable": "postgres://app:secret@db/queues?sslmode=disable",
		"POSTGRES://app@db/queues":                        "postgres://app@db/queues",
		"postgresql://db:5433/queues":                     "postgresql://db:5433/queues",
		"postgres://app:a%40b@db/queues":                  "postgres://app:a%40b@db/queues",
	} {
		u, err := Read(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := ForPgx(text, u); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

func TestPostgresOptions(t *testing.T) {
	for query, want := range map[string][]Option{
		"":                          nil,
		"sslmode=disable":           {{"sslmode", "disable"}},
		"a=1&b=&a=2":                {{"a", "1"}, {"b", ""}, {"a", "2"}},
		"application_name=a+b%20c":  {{"application_name", "a+b c"}},
		"options=-c%20work_mem%3D1": {{"options", "-c work_mem=1"}},
	} {
		if got, err := PostgresOptions(query); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q is read as %v, %v, want %v", query, got, err, want)
		}
	}
	for query, want := range map[string]string{"secret": "name=value", "=secret": "name=value", "password=sec=ret": "%3D", "password=sec%ret": "%25"} {
		if _, err := PostgresOptions(query); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "sec") {
			t.Errorf("%q: %v, want an error with %s that does not quote it", query, err, want)
		}
	}
}

func TestValue_TheLastOfSeveral(t *testing.T) {
	options := []Option{{"a", "1"}, {"b", "2"}, {"a", "3"}}
	for name, want := range map[string]string{"a": "3", "b": "2", "c": ""} {
		if got := Value(options, name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestCheckPostgresOptions(t *testing.T) {
	for _, legal := range []Option{{"pool_max_conns", "1"}, {"pool_min_conns", "0"}, {"pool_ping_timeout", "1m30s"}, {"sslmode", "verify-full"}, {"pool_max_conns", ""}, {"unknown", "secret"}} {
		if err := CheckPostgresOptions([]Option{legal}); err != nil {
			t.Errorf("%v: %v", legal, err)
		}
	}
	for _, illegal := range []Option{{"pool_max_conns", "0"}, {"pool_min_conns", "-1"}, {"connect_timeout", "secret"}, {"pool_ping_timeout", "30"}, {"sslmode", "secret"}} {
		err := CheckPostgresOptions([]Option{{"pool_max_conns", "4"}, illegal})
		if err == nil || !strings.Contains(err.Error(), illegal.name) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v, want an error with its name, without its value", illegal, err)
		}
	}
}

func TestCheckMicrosoftOptions_RefusesRepeatedOnes(t *testing.T) {
	for query, want := range map[string]string{
		"database=a&encrypt=true": "",
		"database=a&database=b":   "the option database is",
		"database=a&DataBase=b":   "the option database is",
		"secret=a&Secret=b":       "an option is",
	} {
		options, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		err = CheckMicrosoftOptions(options)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret")) {
			t.Errorf("%s: %v, want %q without the name of an unknown option", query, err, want)
		}
	}
}

func TestMicrosoftDatabase(t *testing.T) {
	for text, want := range map[string]string{"sqlserver://db": "", "sqlserver://db?database=queues": "queues", "sqlserver://db?DATABASE=queues": "queues"} {
		u, err := Read(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := MicrosoftDatabase(u); got != want {
			t.Errorf("%s names the database %q, want %q", text, got, want)
		}
	}
}

// The reason must help without quoting a value, which may be a misplaced password.
func TestReason(t *testing.T) {
	for text, want := range map[string]string{
		"postgres://app:secret@db:secret/queues":             "",
		"postgres://app:secret@db/queues?sslmode=secret":     failedTLS,
		"postgres://app:x@db/q?sslrootcert=/missing/file":    "no such file",
		"postgres://app:x@db/q?pool_max_conns=secret":        "cannot parse pool_max_conns",
		"postgres://app:x@db/q?target_session_attrs=secret":  "unknown target_session_attrs value",
		"postgres://app:x@db/q?service=secret&servicefile=/": "failed to read service",
	} {
		_, err := pgxpool.ParseConfig(text)
		if err == nil {
			t.Errorf("pgx reads %s", text)
			continue
		}
		if got := Reason(err); !strings.Contains(got, want) || strings.Contains(got, "secret") {
			t.Errorf("%s: %q, want it to contain %q and not the value", text, got, want)
		}
	}
	if got, want := Reason(errors.New(`invalid value "secret" for option: secret`)), "invalid value;"; !strings.HasPrefix(got, want) || strings.Contains(got, "secret") {
		t.Errorf("of another driver: %q, want %q", got, want)
	}
}

func TestHasHostOfPassword(t *testing.T) {
	for name, test := range map[string]struct {
		config pgconn.Config
		want   bool
	}{
		"a host":            {pgconn.Config{Host: "db"}, false},
		"a host with an @":  {pgconn.Config{Host: "word@db"}, true},
		"a socket":          {pgconn.Config{Host: "/run/a@b"}, false},
		"a second host":     {pgconn.Config{Host: "db", Fallbacks: []*pgconn.FallbackConfig{{Host: "word@db"}}}, true},
		"two harmless ones": {pgconn.Config{Host: "db", Fallbacks: []*pgconn.FallbackConfig{{Host: "db2"}}}, false},
	} {
		if got := HasHostOfPassword(&test.config); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

func TestWithoutHostOfPassword(t *testing.T) {
	quoting := &pgconn.ConnectError{Config: &pgconn.Config{Host: "word@db"}}
	if err := WithoutHostOfPassword(quoting); !errors.Is(err, ErrHostOfPassword) || errors.Is(err, quoting) {
		t.Errorf("%v, want ErrHostOfPassword in its place", err)
	}
	other := errors.New("outage")
	if err := WithoutHostOfPassword(other); !errors.Is(err, other) {
		t.Errorf("another error becomes %v", err)
	}
}

func TestWeaknessOfPgx(t *testing.T) {
	for query, want := range map[string]string{
		"db?sslmode=disable":           "are not encrypted",
		"db?sslmode=prefer":            "are not encrypted where it has no TLS",
		"db?sslmode=require":           "do not verify the server (sslmode=require",
		"db?sslmode=verify-full":       "",
		"localhost?sslmode=disable":    "",
		"127.0.0.1?sslmode=disable":    "",
		"?host=/run&sslmode=disable":   "",
		"localhost,db?sslmode=disable": `PostgreSQL at "db" are`,
	} {
		c, err := pgconn.ParseConfig("postgres://" + query)
		if err != nil {
			t.Fatal(err)
		}
		if got := WeaknessOfPgx(c); (got == "") != (want == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
}

func TestWeaknessOfMicrosoft(t *testing.T) {
	for name, test := range map[string]struct {
		server microsoftdriver.Server
		host   string
		want   string
	}{
		"not encrypted":          {microsoftdriver.Server{}, "db", "are not encrypted"},
		"encrypted":              {microsoftdriver.Server{Encrypts: true, TLS: &tls.Config{InsecureSkipVerify: true}}, "db", "do not verify the server"},
		"verified":               {microsoftdriver.Server{Encrypts: true, TLS: &tls.Config{}}, "db", ""},
		"only the login":         {microsoftdriver.Server{TLS: &tls.Config{}}, "db", "are not encrypted, but for the login"},
		"this machine":           {microsoftdriver.Server{}, "localhost", ""},
		"this machine, by a dot": {microsoftdriver.Server{}, ".", ""},
	} {
		if got := WeaknessOfMicrosoft(&test.server, test.host); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
