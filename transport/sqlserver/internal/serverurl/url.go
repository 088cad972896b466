package serverurl

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/reprise-go/reprise/transport"
)

// Read reads Config.URL. Its errors quote nothing that may be part of a password.
func Read(text string) (*url.URL, error) {
	return transport.ReadURL("Config.URL", text, "postgres:// or sqlserver:// (a list of key=value is not read)")
}

// ForPgx returns the text of a URL that Read has read, in which pgx finds the same
// parts. pgx knows only lower-case schemes (it reads any other text as a list of
// key=value), and ends the password at the first @, which a password may contain here.
func ForPgx(text string, u *url.URL) string {
	_, rest, _ := strings.Cut(text, "://")
	if u.User != nil { // then no other @ follows: Read refuses one
		rest = u.User.String() + rest[strings.LastIndex(rest, "@"):]
	}
	return u.Scheme + "://" + rest
}

// Option is an option of a URL of PostgreSQL.
type Option struct{ name, value string }

// PostgresOptions reads options as pgx does, in which a + is no space. Its errors quote
// none of them: a value that contains an & or = may be a password.
func PostgresOptions(query string) ([]Option, error) {
	var options []Option
	for query != "" {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" || strings.Contains(value, "=") {
			return nil, errors.New("options are written as name=value and separated by &; in a value an & is written as %26 and an = as %3D")
		}
		o := Option{}
		var err error
		if o.name, err = url.PathUnescape(name); err == nil {
			o.value, err = url.PathUnescape(value)
		}
		if err != nil {
			return nil, errors.New("in its options a % is not followed by two hexadecimal digits; a % itself is written as %25")
		}
		options = append(options, o)
	}
	return options, nil
}

// Value returns the value of an option. Of several, pgx uses the last.
func Value(options []Option, name string) string {
	for _, o := range slices.Backward(options) {
		if o.name == name {
			return o.value
		}
	}
	return ""
}

// CheckPostgresOptions checks options of pgx and pgxpool for which their errors would quote the
// value, or not name the option. Its error does not quote the value, which may be a
// misplaced secret.
func CheckPostgresOptions(options []Option) error {
	for _, o := range []struct {
		name  string
		legal func(value string) bool
		must  string
	}{
		{"pool_max_conns", wholeFrom(1), "a whole number of at least 1"},
		{"pool_min_conns", wholeFrom(0), "a whole number"},
		{"pool_min_idle_conns", wholeFrom(0), "a whole number"},
		{"connect_timeout", wholeFrom(0), "a whole number of seconds"},
		{"statement_cache_capacity", wholeFrom(0), "a whole number"},
		{"description_cache_capacity", wholeFrom(0), "a whole number"},
		{"pool_max_conn_lifetime", isDuration, aDuration},
		{"pool_max_conn_lifetime_jitter", isDuration, aDuration},
		{"pool_max_conn_idle_time", isDuration, aDuration},
		{"pool_health_check_period", isDuration, aDuration},
		{"pool_ping_timeout", isDuration, aDuration},
		{"default_query_exec_mode", oneOf("cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"), "one of cache_statement, cache_describe, describe_exec, exec, simple_protocol"},
		{"target_session_attrs", oneOf("any", "read-write", "read-only", "primary", "standby", "prefer-standby"), "one of any, read-write, read-only, primary, standby, prefer-standby"},
		{"channel_binding", oneOf("disable", "prefer", "require"), "one of disable, prefer, require"},
		{"sslcertmode", oneOf("disable", "allow", "require"), "one of disable, allow, require"},
		{"min_protocol_version", oneOf("3.0", "3.2", "latest"), "one of 3.0, 3.2, latest"},
		{"max_protocol_version", oneOf("3.0", "3.2", "latest"), "one of 3.0, 3.2, latest"},
		{"sslmode", oneOf(sslModes...), "one of " + strings.Join(sslModes, ", ")},
	} {
		for _, given := range options {
			if given.name == o.name && given.value != "" && !o.legal(given.value) {
				return fmt.Errorf("the option %s must be %s", o.name, o.must)
			}
		}
	}
	return nil
}

func wholeFrom(minimum int64) func(value string) bool {
	return func(value string) bool {
		n, err := strconv.ParseInt(value, 10, 32)
		return err == nil && n >= minimum
	}
}

func isDuration(value string) bool {
	_, err := time.ParseDuration(value)
	return err == nil
}

func oneOf(legal ...string) func(value string) bool {
	return func(value string) bool { return slices.Contains(legal, value) }
}

const aDuration = `a duration such as "30s" or "1h30m"`

var sslModes = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

// CheckMicrosoftOptions refuses repeated options, for which go-mssqldb's error would
// quote the names.
func CheckMicrosoftOptions(options url.Values) error {
	count := map[string]int{}
	for name, values := range options {
		name = strings.ToLower(name)
		if count[name] += len(values); count[name] > 1 && slices.Contains(microsoftOptions, name) {
			return fmt.Errorf("the option %s is there several times; upper and lower case are the same", name)
		}
	}
	for _, n := range count {
		if n > 1 {
			return errors.New("an option is there several times; upper and lower case are the same")
		}
	}
	return nil
}

// MicrosoftDatabase returns the database that a URL names, as go-mssqldb reads it.
// CheckMicrosoftOptions has ensured that there is at most one.
func MicrosoftDatabase(u *url.URL) string {
	for name, values := range u.Query() {
		if strings.ToLower(name) == "database" { // not EqualFold, which knows more letters
			return values[0]
		}
	}
	return ""
}

// microsoftOptions are options whose names an error may quote.
var microsoftOptions = []string{"database", "encrypt", "app name", "dial timeout", "connection timeout", "trustservercertificate", "certificate"}

// Reason returns the reason for which pgx or go-mssqldb refuses a URL, without any value:
// they quote values of options and of environment variables, and pgx nearly all of the
// URL.
func Reason(err error) string {
	const check = "; check the options, and the variables of the environment that the client library reads"
	refused, ok := errors.AsType[*pgconn.ParseConfigError](err)
	if !ok {
		return constantPart(err.Error()) + check
	}
	text, inner := refused.Error(), refused.Unwrap()
	if inner != nil {
		text = strings.TrimSuffix(text, " ("+inner.Error()+")")
	}
	at := slices.IndexFunc(refusalsOfPgx, func(known string) bool { return strings.Contains(text, "`: "+known) })
	switch {
	case at < 0:
		return "pgx cannot use it" + check
	case refusalsOfPgx[at] != failedTLS || inner == nil:
		return refusalsOfPgx[at] + check
	}
	if file, ok := errors.AsType[*fs.PathError](inner); ok {
		return fmt.Sprintf("%s (sslrootcert, sslcert, sslkey): %s: %v", failedTLS, constantPart(inner.Error()), file.Err)
	}
	return failedTLS + ": " + inner.Error() // it quotes nothing else
}

const failedTLS = "failed to configure TLS"

// refusalsOfPgx are the beginnings of pgx's texts after the URL that they quote; pgx's
// errors differ in nothing else. Values may follow.
var refusalsOfPgx = []string{
	failedTLS, "failed to parse as URL", "failed to read service", "could not match", "invalid port",
	"invalid connect_timeout", "invalid sslcertmode", "unknown target_session_attrs value", "unknown channel_binding value",
	"invalid min_protocol_version", "invalid max_protocol_version", "min_protocol_version cannot be greater than max_protocol_version",
	"invalid require_auth", "invalid default_query_exec_mode", "cannot parse statement_cache_capacity", "cannot parse description_cache_capacity",
	"cannot parse pool_max_conns", "pool_max_conns too small", "cannot parse pool_min_conns", "cannot parse pool_min_idle_conns",
	"cannot parse pool_max_conn_lifetime_jitter", "cannot parse pool_max_conn_lifetime", "cannot parse pool_max_conn_idle_time",
	"cannot parse pool_health_check_period", "cannot parse pool_ping_timeout",
}

// constantPart returns the beginning of an error's text, up to the first place that may
// quote a value.
func constantPart(text string) string {
	if end := strings.IndexAny(text, "'\"`:("); end >= 0 {
		text = text[:end]
	}
	return strings.TrimSpace(text)
}

// ErrHostOfPassword is about an impossible host name: the end of a password that was not
// percent-encoded, which pgx takes for the host. pgx's error would quote it.
var ErrHostOfPassword = errors.New("the host in it has an @, and is the end of a password: an @ in a password is written as %40")

// HasHostOfPassword reports whether a host that pgx would connect to is the end of a
// password.
func HasHostOfPassword(c *pgconn.Config) bool {
	wrong := func(host string) bool { return strings.Contains(host, "@") && !strings.HasPrefix(host, "/") }
	return wrong(c.Host) || slices.ContainsFunc(c.Fallbacks, func(f *pgconn.FallbackConfig) bool { return wrong(f.Host) })
}

// WithoutHostOfPassword replaces an error of a caller's pool that quotes a password.
func WithoutHostOfPassword(err error) error {
	if failed, ok := errors.AsType[*pgconn.ConnectError](err); ok && failed.Config != nil && HasHostOfPassword(failed.Config) {
		return transport.Permanent(fmt.Errorf("Config.DB: %w", ErrHostOfPassword))
	}
	return err
}
