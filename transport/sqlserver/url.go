package sqlserver

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// readURL reads Config.URL, and finds what the client libraries would pass over or
// explain badly. No error quotes what may be part of a password: where a character of
// one is not percent-encoded, that may be nearly any part of the text.
func readURL(text string) (*url.URL, error) {
	if strings.TrimSpace(text) != text {
		return nil, errors.New("Config.URL begins or ends with a space or a line break; remove it")
	}
	if !strings.Contains(text, "://") {
		return nil, errors.New("Config.URL is no URL: begin it with postgres:// or sqlserver:// (a list of key=value is not read)")
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("Config.URL is no URL: %s", whyNoURL(err, text))
	}
	if u.Fragment != "" || u.User == nil && strings.Contains(u.Path, "@") {
		return nil, fmt.Errorf("Config.URL is not what it was meant to be: %s", separators)
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		port := (&url.URL{Host: host}).Port()
		if n, err := strconv.Atoi(port); port == "" || err == nil && n >= 1 && n <= 65535 {
			continue
		}
		if _, certain := hostOf(text); !certain {
			return nil, errors.New("Config.URL: a port is not a number from 1 to 65535")
		}
		return nil, fmt.Errorf("Config.URL: the port in %q is not a number from 1 to 65535", host)
	}
	switch _, err := url.ParseQuery(u.RawQuery); {
	case errors.As(err, new(url.EscapeError)):
		return nil, fmt.Errorf("Config.URL: in its options %s", strayPercent)
	case err != nil:
		return nil, errors.New("Config.URL: options are separated by &, and a ; in a value is written as %3B")
	}
	return u, nil
}

const (
	separators   = "a /, ?, # or @ in the user or the password is written as %2F, %3F, %23 or %40, and a # as %23 everywhere"
	strayPercent = "a % is not followed by two hexadecimal digits; a % itself is written as %25"
)

// whyNoURL explains an error of url.Parse without the parts of the text that it quotes.
func whyNoURL(err error, text string) string {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err
	}
	host, certain := hostOf(text)
	begins := func(with string) bool { return strings.HasPrefix(err.Error(), with) }
	switch {
	case errors.As(err, new(url.EscapeError)):
		return strayPercent
	case begins("invalid port") && certain:
		return fmt.Sprintf("the port in %q is not a number (where there are several hosts, each has its port)", host)
	case begins("invalid port"):
		return "what follows the colon after the host is no port; " + separators
	case errors.As(err, new(url.InvalidHostError)) && certain:
		return fmt.Sprintf("the host %q has a character that no host has", host)
	case begins("net/url: invalid control character"):
		return "there is a control character in it, such as a line break"
	default: // also "invalid userinfo"
		return "special characters in the user or the password must be percent-encoded, a space as %20 for example"
	}
}

// hostOf returns the host and the port of what may be no URL, and whether they are
// certain to be that, and no part of a password.
func hostOf(text string) (host string, certain bool) {
	_, rest, _ := strings.Cut(text, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		end = len(rest)
	}
	at := strings.LastIndex(rest, "@")
	if at < 0 || at > end {
		return "", false
	}
	return rest[at+1 : end], true
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
	if _, after, ok := cutLast(text, "`: "); ok && strings.HasPrefix(text, "cannot parse `") {
		text = after
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

func cutLast(text, separator string) (before, after string, found bool) {
	i := strings.LastIndex(text, separator)
	if i < 0 {
		return text, "", false
	}
	return text[:i], text[i+len(separator):], true
}
