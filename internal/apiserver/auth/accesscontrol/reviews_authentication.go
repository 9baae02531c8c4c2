package accesscontrol

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
)

func reviewSelf(ctx context.Context, r *authenticationv1.SelfSubjectReview) error {
	self, err := requestUser(ctx)
	if err != nil {
		return err
	}
	r.Status = authenticationv1.SelfSubjectReviewStatus{UserInfo: infoOf(self)}
	return nil
}

// reviewToken authenticates a token for the requested audiences.
func (c reviews) reviewToken(ctx context.Context, r *authenticationv1.TokenReview) error {
	if r.Spec.Token == "" {
		return apierrors.NewBadRequest("token is required for TokenReview in authentication")
	}
	audiences := c.Audiences
	if len(r.Spec.Audiences) > 0 {
		audiences = r.Spec.Audiences
	}
	response, ok, err := c.Tokens.AuthenticateToken(authenticator.WithAudiences(ctx, audiences), r.Spec.Token)
	r.Status = authenticationv1.TokenReviewStatus{Authenticated: ok && err == nil}
	if err != nil {
		r.Status.Error = err.Error()
	}
	if !r.Status.Authenticated {
		return nil
	}
	r.Status.User = infoOf(response.User)
	r.Status.Audiences = response.Audiences
	if len(response.Audiences) == 0 && len(r.Spec.Audiences) > 0 {
		// A token without audiences belongs to a component: it is valid for the server's audiences only,
		// whatever other audiences the review names.
		r.Status.Audiences = c.Audiences.Intersect(r.Spec.Audiences)
		if len(r.Status.Audiences) == 0 {
			r.Status = authenticationv1.TokenReviewStatus{Error: "the token is not valid for any of the audiences"}
		}
	}
	return nil
}

func infoOf(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}
