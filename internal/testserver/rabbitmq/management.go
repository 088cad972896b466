//go:build darwin || linux

package rabbitmq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/process"
)

// guest is the administrator that RabbitMQ creates, and its password.
const guest = "guest"

// web keeps no connections, because a killed server would break them.
var web = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Manage sends a request to the management API as the administrator guest and returns the
// body of the answer. The path starts with /api and has its parts escaped; the body is JSON
// or empty. An answer other than 2xx is an error.
func (s *Server) Manage(ctx context.Context, method, path, body string) (string, error) {
	answer, err := s.manage(ctx, method, path, body)
	if err != nil {
		return "", fmt.Errorf("rabbitmq: %s %s: %w", method, path, err)
	}
	return answer, nil
}

func (s *Server) manage(ctx context.Context, method, path, body string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, method, "http://"+s.ports.management.Addr()+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.SetBasicAuth(guest, guest)
	request.Header.Set("Content-Type", "application/json")
	response, err := web.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close() //nolint:errcheck // it was only read
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	if response.StatusCode/100 != 2 {
		return "", fmt.Errorf("%s: %s", response.Status, answer)
	}
	return string(answer), nil
}

func (s *Server) readVersion(ctx context.Context) (string, error) {
	answer, err := s.Manage(ctx, "GET", "/api/overview", "")
	if err != nil {
		return "", err
	}
	var overview struct {
		Version string `json:"rabbitmq_version"`
	}
	if err := json.Unmarshal([]byte(answer), &overview); err != nil {
		return "", fmt.Errorf("read the version: %w", err)
	}
	return overview.Version, nil
}

func (s *Server) createUser(ctx context.Context) error {
	user, err := json.Marshal(map[string]string{"password": Password, "tags": "monitoring"})
	if err != nil {
		return err
	}
	_, err = s.Manage(ctx, "PUT", "/api/users/"+User, string(user))
	return err
}

// grant gives a user every right in a vhost.
func (s *Server) grant(ctx context.Context, vhost, user string) error {
	_, err := s.Manage(ctx, "PUT", "/api/permissions/"+url.PathEscape(vhost)+"/"+user, `{"configure":".*","write":".*","read":".*"}`)
	return err
}

// CreateVHost creates a vhost in which User and guest have every right. Delete it with Manage
// or Ctl, or leave it to Stop.
func (s *Server) CreateVHost(ctx context.Context, name string) error {
	if _, err := s.Manage(ctx, "PUT", "/api/vhosts/"+url.PathEscape(name), ""); err != nil {
		return err
	}
	for _, user := range []string{User, guest} {
		if err := s.grant(ctx, name, user); err != nil {
			return err
		}
	}
	return nil
}

// NewVHost creates a vhost in which User and guest have every right and returns its name. It
// is deleted at the end of the test, even if clients are still connected to it.
func (s *Server) NewVHost(t testing.TB) (name string) {
	t.Helper()
	name = fmt.Sprintf("test_%d", s.vhosts.Add(1))
	if err := s.CreateVHost(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.life.Running() == nil {
			return // Stop removes it
		}
		// A busy server closes the connection of a request that takes it a minute, and goes on with it.
		ctx, cancel := context.WithTimeout(context.Background(), process.Patience)
		defer cancel()
		for {
			_, err := s.Manage(ctx, "DELETE", "/api/vhosts/"+name, "")
			if !errors.Is(err, io.EOF) {
				if err != nil && !strings.Contains(err.Error(), "404") { // an earlier request has deleted it
					t.Error(err)
				}
				return
			}
		}
	})
	return name
}
