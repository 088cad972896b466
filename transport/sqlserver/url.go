package sqlserver

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/reprise-go/reprise/transport"
)

// readURL reads Config.URL. No error quotes what may be part of a password.
func readURL(text string) (*url.URL, error) {
	return transport.ReadURL("Config.URL", text, "postgres:// or sqlserver:// (a list of key=value is not read)")
}

// checkOptions checks options of pgx and pgxpool whose values they would refuse
// without saying whose value it is.
func checkOptions(options url.Values) error {
	for _, o := range []struct {
		name  string
		legal func(value string) bool
		must  string
	}{
		{"pool_max_conns", wholeFrom(1), "a whole number of at least 1"},
		{"pool_min_conns", wholeFrom(0), "a whole number"},
		{"pool_min_idle_conns", wholeFrom(0), "a whole number"},
		{"connect_timeout", wholeFrom(0), "a whole number of seconds"},
		{"pool_max_conn_lifetime", isDuration, aDuration},
		{"pool_max_conn_lifetime_jitter", isDuration, aDuration},
		{"pool_max_conn_idle_time", isDuration, aDuration},
		{"pool_health_check_period", isDuration, aDuration},
		{"pool_ping_timeout", isDuration, aDuration},
		{"sslmode", func(value string) bool { return slices.Contains(sslModes, value) }, "one of " + strings.Join(sslModes, ", ")},
	} {
		if value := options.Get(o.name); value != "" && !o.legal(value) {
			return fmt.Errorf("the option %s is %q, but must be %s", o.name, value, o.must)
		}
	}
	return nil
}

func wholeFrom(least int64) func(value string) bool {
	return func(value string) bool {
		n, err := strconv.ParseInt(value, 10, 32)
		return err == nil && n >= least
	}
}

func isDuration(value string) bool {
	_, err := time.ParseDuration(value)
	return err == nil
}

const aDuration = `a duration such as "30s" or "1h30m"`

var sslModes = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

// withoutSecrets returns an error's text without the URL that pgx quotes, and without
// a password.
func withoutSecrets(err error, u *url.URL) string {
	text := err.Error()
	if end := strings.LastIndex(text, "`: "); end >= 0 && strings.HasPrefix(text, "cannot parse `") {
		text = text[end+len("`: "):]
	}
	options := u.Query()
	secrets := []string{options.Get("password"), options.Get("sslpassword")}
	if password, ok := u.User.Password(); ok {
		secrets = append(secrets, u.User.String(), password)
	}
	for _, secret := range secrets {
		for _, written := range []string{secret, url.QueryEscape(secret), url.PathEscape(secret)} {
			if written != "" {
				text = strings.ReplaceAll(text, written, "xxxxx")
			}
		}
	}
	return text
}
