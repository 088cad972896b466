//go:build darwin || linux

package postgres

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
)

// verifier returns the server's stored form of an ASCII password for SCRAM-SHA-256 (RFC
// 5802), with a single round of hashing. PostgreSQL uses 4,096 rounds, which both sides
// repeat for each connection: with the race detector they took most of the time of the tests.
func verifier(password string) string {
	const rounds = 1
	salt := []byte("reprise testserv") // 16 bytes, as the server uses
	salted, err := pbkdf2.Key(sha256.New, password, salt, rounds, sha256.Size)
	if err != nil {
		panic("postgres: " + err.Error()) // only if FIPS 140 forbids the parameters
	}
	sign := func(text string) []byte {
		mac := hmac.New(sha256.New, salted)
		mac.Write([]byte(text))
		return mac.Sum(nil)
	}
	stored := sha256.Sum256(sign("Client Key"))
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("SCRAM-SHA-256$%d:%s$%s:%s", rounds, encode(salt), encode(stored[:]), encode(sign("Server Key")))
}
