// Before anything is painted: the colours and the language that were chosen last.
const chosenScheme = localStorage.getItem("vitreous-scheme");
if (chosenScheme === "light" || chosenScheme === "dark") document.documentElement.dataset.scheme = chosenScheme;
