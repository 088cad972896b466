package api

import (
	"encoding/json"
	"reflect"
	"strings"
)

// IsBatchID reports whether a text can be the id of an entry of a batch: 1 to 80 letters, digits, hyphens and underscores.
func IsBatchID(id string) bool {
	if len(id) < 1 || len(id) > 80 {
		return false
	}
	for i := range len(id) {
		if c := id[i]; !IsAlphanumeric(c) && c != '-' && c != '_' {
			return false
		}
	}
	return true
}

// IsAlphanumeric reports whether a character is an ASCII letter or digit.
func IsAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

// IsToken reports whether a text can be a group id, a deduplication id or a
// ReceiveRequestAttemptId.
func IsToken(s string) bool {
	if len(s) < 1 || len(s) > 128 {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// InvalidToken returns the error of a parameter for which IsToken is false.
func InvalidToken(parameter, value string) *Error {
	return InvalidParameter("Value %s for parameter %s is invalid. Reason: %s can only include alphanumeric and punctuation characters. 1 to 128 in length.", value, parameter, parameter)
}

// TrimARN returns the last part of an ARN.
func TrimARN(arn string) string { return arn[strings.LastIndexByte(arn, ':')+1:] }

const MaxMessageSize = 1 << 20 // also of a batch

// SameJSON reports whether two texts are JSON of the same value.
func SameJSON(a, b string) bool {
	var x, y any
	if json.Unmarshal([]byte(a), &x) != nil || json.Unmarshal([]byte(b), &y) != nil {
		return false
	}
	return reflect.DeepEqual(x, y)
}
