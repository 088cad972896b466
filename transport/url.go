package transport

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// ReadURL parses the URL of a server in a configuration, and finds mistakes that client
// libraries accept or explain badly. It accepts the same URLs as they do: no host,
// several hosts separated by commas if url.Parse accepts them, any scheme.
//
// An error begins with name, the place where the URL was written ("Config.URL"), and
// quotes no text that may be part of a password: if a character of a password is not
// percent-encoded, that may be nearly any part of the URL. For a text without "://" the
// error says to begin it with begin ("amqp:// or amqps://").
func ReadURL(name, text, begin string) (*url.URL, error) {
	if strings.TrimSpace(text) != text {
		return nil, fmt.Errorf("%s begins or ends with a space or a line break; remove it", name)
	}
	if !strings.Contains(text, "://") {
		return nil, fmt.Errorf("%s is no URL: begin it with %s", name, begin)
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s is no URL: %s", name, whyNoURL(err, text))
	}
	if isAmbiguous(text) {
		return nil, fmt.Errorf("%s has been split in the wrong place: %s", name, separators)
	}
	for host := range strings.SplitSeq(u.Host, ",") {
		port := (&url.URL{Host: host}).Port()
		if n, err := strconv.Atoi(port); port == "" || err == nil && n >= 1 && n <= 65535 {
			continue
		}
		if _, certain := hostOf(text); !certain {
			return nil, fmt.Errorf("%s: a port is not a number from 1 to 65535", name)
		}
		return nil, fmt.Errorf("%s: the port in %q is not a number from 1 to 65535", name, host)
	}
	switch _, err := url.ParseQuery(u.RawQuery); {
	case errors.As(err, new(url.EscapeError)):
		return nil, fmt.Errorf("%s: in its options %s", name, strayPercent)
	case err != nil:
		return nil, fmt.Errorf("%s: options are separated by &, and a ; in a value is written as %%3B", name)
	}
	return u, nil
}

// isAmbiguous reports whether parsers can disagree about where the password of a URL
// ends: it has a #, or an @ after the first / or ?. url.Parse takes such an @ for a part
// of the path or of the options, other parsers for a part of the password. If the URL
// names neither a user nor a host, an @ in the options cannot belong to a password.
func isAmbiguous(text string) bool {
	_, rest, _ := strings.Cut(text, "://")
	end := strings.IndexAny(rest, "/?#")
	if end < 0 {
		return false
	}
	tail := rest[end:]
	if strings.Contains(tail, "#") {
		return true
	}
	if strings.HasPrefix(rest, "/") {
		tail, _, _ = strings.Cut(tail, "?")
	}
	return strings.Contains(tail, "@")
}

const (
	separators   = "a /, ? or # in the user or the password is written as %2F, %3F or %23, a # as %23 everywhere, and an @ as %40 everywhere but before the host"
	strayPercent = "a % is not followed by two hexadecimal digits; a % itself is written as %25"
)

// whyNoURL explains an error of url.Parse without quoting parts of the text, as url.Parse
// does.
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
		return "the text after the colon behind the host is no port; " + separators
	case errors.As(err, new(url.InvalidHostError)) && certain:
		return fmt.Sprintf("the host %q has a character that no host has", host)
	case begins("net/url: invalid control character"):
		return "there is a control character in it, such as a line break"
	default: // also "invalid userinfo"
		return "special characters in the user or the password must be percent-encoded, a space as %20 for example"
	}
}

// hostOf returns the host and the port in a text that may not be a URL, and whether they
// are certain not to be part of a password.
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

// shownURL returns a URL without the password, and without the options, which may contain
// another one.
func shownURL(u *url.URL) string {
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.User != nil {
		shown.User = url.User(u.User.Username())
	}
	return shown.String()
}

// RedactURL returns a URL of a configuration for its String method: the URL that read
// returns without its password and options, "" for "", and a constant text if read refuses
// it, because the password may be anywhere in it.
func RedactURL(text string, read func(text string) (*url.URL, error)) string {
	if text == "" {
		return ""
	}
	u, err := read(text)
	if err != nil {
		return unreadableURL
	}
	return shownURL(u)
}

const unreadableURL = "(a URL that cannot be read)"
